"""Ways to run a model on inputs; the conformance test can be pointed at any of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import tilewright as tw
from tilewright.frontends import UnspecialisedError, from_onnx
from tilewright.graph import STRING, Call, all_graphs
from tilewright.models.hosted import HostedModel
from tilewright.runtime import CasesModel

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
    """By native code, all of it where there are no strings and no image files."""
    made = tw.compile(model, threads=1)
    results = made.run(list(inputs))
    for program in [p for _, p in made.cases] if isinstance(made, CasesModel) else [made]:
        assert not isinstance(program, HostedModel) or _needs_python(program.graph), program.hosted
    return results


def _needs_python(module: tw.graph.Module) -> bool:
    bindings = [b for g in all_graphs(module.main) for b in g.body]
    args = [a for b in bindings for a in b.expr.args if a is not None]
    types = [v.type for v in (*module.main.params, *args)]
    has_strings = any(getattr(t, "dtype", None) is STRING for t in types)
    return has_strings or any(isinstance(b.expr, Call) and b.expr.op.host for b in bindings)


RUNNERS: dict[str, Run] = {"evaluate": evaluated, "compile": compiled}
