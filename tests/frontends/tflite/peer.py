"""What tests compare with: our answers by the evaluator and natively, and LiteRT's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.frontends.tflite import from_tflite
from tilewright.graph import evaluate


def ours(data: bytes, *inputs: Any, native: bool = False, opt_level: int = 2) -> list[Any]:
    """The results of a model, by NumPy's reference of our operators or by compiled code."""
    if native:
        return tw.compile(data, threads=1, opt_level=opt_level).run(list(inputs))
    return [np.asarray(r) for r in evaluate(from_tflite(data), list(inputs))]


def lite(data: bytes, *inputs: Any) -> list[Any]:
    """The results of LiteRT's reference kernels; of others where there are none."""
    model = _interpreter(data)
    for detail, x in zip(model.get_input_details(), inputs, strict=True):
        if tuple(detail["shape"]) != np.shape(x):
            model.resize_tensor_input(detail["index"], np.shape(x))
    model.allocate_tensors()
    for detail, x in zip(model.get_input_details(), inputs, strict=True):
        model.set_tensor(detail["index"], x)
    model.invoke()
    return [model.get_tensor(d["index"]) for d in model.get_output_details()]


def _interpreter(data: bytes) -> Any:
    litert = pytest.importorskip("ai_edge_litert.interpreter")
    kinds = litert.OpResolverType
    try:
        return litert.Interpreter(
            model_content=data, experimental_op_resolver_type=kinds.BUILTIN_REF
        )
    except ValueError:
        kernels = kinds.BUILTIN_WITHOUT_DEFAULT_DELEGATES
        return litert.Interpreter(model_content=data, experimental_op_resolver_type=kernels)


def require_close(found: Sequence[Any], wanted: Sequence[Any], *, steps: int = 0) -> None:
    """Floats agree but for rounding, integers but for so many steps."""
    assert len(found) == len(wanted)
    for a, b in zip(found, wanted, strict=True):
        a, b = np.asarray(a), np.asarray(b)
        assert a.shape == b.shape and a.dtype == b.dtype, (a.shape, b.shape, a.dtype, b.dtype)
        if a.dtype.kind == "f":
            np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5)
        else:
            np.testing.assert_array_less(np.abs(a.astype(np.int64) - b.astype(np.int64)), steps + 1)
