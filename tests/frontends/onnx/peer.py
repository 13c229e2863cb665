"""One operator here and in ONNX Runtime, compared."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest

from tests.conformance.runners import evaluated
from tests.frontends.onnx.models import info, make, node

VERSIONS = {"com.microsoft": 1, "ai.onnx.ml": 3}


def compare(
    op: str,
    operands: Sequence[Any],
    *,
    count: int = 1,
    domain: str = "com.microsoft",
    constants: Sequence[int] = (),
    compared: int | None = None,
    slack: int = 0,
    rtol: float = 1e-4,
    atol: float = 1e-4,
    **attrs: Any,
) -> None:
    """Fails unless both give the same; whole numbers may differ by `slack`.

    `constants` are the places of operands that are weights of the model, and not its inputs;
    `compared` is how many results count.
    """
    model = _model(op, operands, count, domain, constants, attrs)
    given = [a for k, a in enumerate(operands) if a is not None and k not in constants]
    want = run_peer(model, given)
    got = evaluated(model, given)
    assert len(got) == len(want)
    for g, w in list(zip(got, want, strict=True))[:compared]:
        _compare(np.asarray(g), w, slack, rtol, atol)


def _model(
    op: str, operands: Sequence[Any], count: int, domain: str, constants: Any, attrs: dict[str, Any]
) -> onnx.ModelProto:
    names = ["" if a is None else f"x{k}" for k, a in enumerate(operands)]
    inputs = [
        info(n, "string" if a.dtype == object else a.dtype, a.shape)
        for k, (n, a) in enumerate(zip(names, operands, strict=True))
        if n and k not in constants
    ]
    outputs = [f"y{k}" for k in range(count)]
    made = node(op, names, outputs, domain=domain, **attrs)
    weights = {names[k]: operands[k] for k in constants}
    return make([made], inputs, outputs, weights, opset=17, domains=VERSIONS)


def run_peer(model: onnx.ModelProto, given: Sequence[Any]) -> list[Any]:
    """What ONNX Runtime gives, operator by operator as the model says."""
    ort: Any = pytest.importorskip("onnxruntime")
    ort.set_default_logger_severity(4)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    names = [i.name for i in model.graph.input]
    return session.run(None, dict(zip(names, given, strict=True)))


def _compare(got: Any, want: Any, slack: int, rtol: float, atol: float) -> None:
    assert got.shape == want.shape
    if want.dtype == object:
        assert got.tolist() == want.tolist()
        return
    assert got.dtype == want.dtype
    if want.dtype.kind in "iu":
        np.testing.assert_allclose(got.astype(np.int64), want.astype(np.int64), rtol=0, atol=slack)
    else:
        np.testing.assert_allclose(got, want, rtol=rtol, atol=atol)
