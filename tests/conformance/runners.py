"""Ways to run a model on inputs; the conformance test can be pointed at any of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import tilewright as tw
from tilewright.frontends import UnspecialisedError, from_onnx

Run = Callable[[Any, Sequence[Any]], list[Any]]


def evaluated(model: Any, inputs: Sequence[Any]) -> list[Any]:
    """By the NumPy references of the operators."""
    given = dict(zip([i.name for i in model.graph.input], inputs, strict=False))
    module = specialised(model, given)
    return tw.graph.evaluate(module, [given[p.name] for p in module.main.params])


def specialised(model: Any, given: dict[str, Any]) -> tw.graph.Module:
    """The graph of a model, built for those inputs that its structure depends on."""
    shapes: dict[str, Any] = {}
    values: dict[str, Any] = {}
    while True:
        try:
            return from_onnx(model, shapes, values)
        except UnspecialisedError as error:
            asked = set(error.shapes) - set(shapes), set(error.values) - set(values)
            if not any(asked):
                raise
            shapes |= {n: np.shape(given[n]) for n in error.shapes}
            values |= {n: given[n] for n in error.values}


def compiled(model: Any, inputs: Sequence[Any]) -> list[Any]:
    """By native code."""
    return tw.compile(model, threads=1).run(list(inputs))


RUNNERS: dict[str, Run] = {"evaluate": evaluated, "compile": compiled}
