"""Graphs written as ONNX models mean the same to us and to ONNX Runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import tilewright as tw
from tests.conformance.cases import is_close, load_cases
from tilewright.frontends import from_onnx, save_onnx, to_onnx
from tilewright.graph import Builder, Module, evaluate
from tilewright.support.errors import UserError

ort: Any = pytest.importorskip("onnxruntime")
ort.set_default_logger_severity(4)


@pytest.mark.parametrize("part", range(4))
def test_cases_of_onnx_written_and_read_again(part: int) -> None:
    written, wrong = 0, list[str]()
    for case in load_cases("node")[part::12]:
        try:
            module = from_onnx(case.model)
            again = from_onnx(to_onnx(module))
        except UserError:
            continue
        written += 1
        inputs = case.data[0][0]
        # Compositions of half-precision operators round once more.
        if not is_close(evaluate(again, inputs), evaluate(module, inputs), 1e-2, 1e-3):
            wrong.append(case.name)
    assert not wrong and written > 40


def symbolic() -> Module:
    """Sizes that are computed when the program runs."""
    b = Builder()
    x = b.input("x", "f32", ("n", "s", 12))
    weight = np.random.default_rng(0).standard_normal((12, 12)).astype(np.float32)
    y = b.matmul(x, weight)
    n, s = x.shape[:2]
    heads = b.transpose(b.reshape(y, shape=[n, s, 3, 4]), axes=[0, 2, 1, 3])
    scores = b.softmax(b.matmul(heads, heads, transpose_b=True))
    joined = b.transpose(b.matmul(scores, heads), axes=[0, 2, 1, 3])
    flat = b.reshape(joined, shape=[n * s, 12])
    half = b.slice(flat, starts=[0], ends=[n * s // 2], axes=[0])
    b.output(b.rms_norm(half), b.gelu(b.reshape(flat, shape=[n, s * 12])), names=["a", "b"])
    return b.build()


@pytest.mark.parametrize("dtype", ["i64", "f32"])
@pytest.mark.parametrize("size", [0, 1, 7])
def test_ramps_of_free_sizes(dtype: str, size: int) -> None:
    b = Builder()
    x, one = b.input("x", dtype, ("n",)), b.input("step", dtype, ())
    b.output(b.ramp(one, one, size=x.shape[0] * 2 + 1))
    session = ort.InferenceSession(to_onnx(b.build()).SerializeToString())
    kind = x.dtype.numpy
    (got,) = session.run(None, {"x": np.zeros(size, kind), "step": np.array(3, kind)})
    np.testing.assert_array_equal(got, 3 + 3 * np.arange(size * 2 + 1).astype(kind))


def test_symbolic_sizes_beside_onnxruntime(tmp_path: Path) -> None:
    module = symbolic()
    save_onnx(module, tmp_path / "m.onnx")
    onnx.checker.check_model(str(tmp_path / "m.onnx"), full_check=True)
    session = ort.InferenceSession(tmp_path / "m.onnx")
    for sizes in ((1, 1), (2, 5), (3, 4)):
        x = np.random.default_rng(1).standard_normal((*sizes, 12)).astype(np.float32)
        for got, want in zip(session.run(None, {"x": x}), evaluate(module, [x]), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "attrs",
    [
        {"scales": [1, 1, 2, 2], "coordinates": "asymmetric", "nearest": "floor"},
        {"scales": [2.0, 1.5], "axes": [2, -1], "mode": "linear", "coordinates": "align_corners"},
        {"sizes": [7, 3], "axes": [2, 3], "mode": "cubic", "cubic_a": -0.5},
    ],
)
def test_images_in_other_sizes_beside_onnxruntime(attrs: dict[str, Any]) -> None:
    b = Builder()
    b.output(b.resize(b.input("x", "f32", (1, 2, 4, 6)), **attrs))
    module = b.build()
    x = np.random.default_rng(0).standard_normal((1, 2, 4, 6)).astype(np.float32)
    session = ort.InferenceSession(to_onnx(module).SerializeToString())
    want = evaluate(module, [x])[0]
    np.testing.assert_allclose(session.run(None, {"x": x})[0], want, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(evaluate(from_onnx(to_onnx(module)), [x])[0], want, atol=1e-6)


def test_outputs_that_are_inputs_constants_or_twice_the_same() -> None:
    b = Builder()
    x = b.input("x", "f32", (3,))
    y = b.relu(x)
    b.output(x, y, y, np.arange(3, dtype=np.int64), names=["a", "b", "c", "d"])
    proto = to_onnx(b.build())
    session = ort.InferenceSession(proto.SerializeToString())
    data = np.array([-1, 0, 2], np.float32)
    found = session.run(None, {"x": data})
    for got, want in zip(found, [data, [0, 0, 2], [0, 0, 2], [0, 1, 2]], strict=True):
        np.testing.assert_array_equal(got, want)


def test_what_onnx_cannot_say_is_refused() -> None:
    b = Builder()
    b.output(b.sort_key(b.input("x", "f32", (4,))))
    with pytest.raises(tw.UserError, match="cannot write sort_key to ONNX"):
        to_onnx(b.build())
    b = Builder()
    x = b.input("x", "bool", ())
    b.output(b.branch(x, lambda: b.constant(1.0), lambda: b.constant(2.0)))
    with pytest.raises(tw.UserError, match="control flow is not written"):
        to_onnx(b.build())
