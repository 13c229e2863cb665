"""Operators whose meaning, operands or attributes changed from version to version."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.frontends.onnx.models import applied

RNG = np.random.default_rng(4)
X = RNG.standard_normal((2, 3, 4, 5)).astype(np.float32)


def same(got: Any, want: Any) -> None:
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_broadcasting_before_version_7() -> None:
    b = np.array([1.0, 2.0, 3.0], np.float32)
    same(applied("Add", X, b, opset=6, broadcast=1, axis=1)[0], X + b[:, None, None])
    same(applied("Mul", X, b[:2], opset=6, broadcast=1, axis=0)[0], X * b[:2, None, None, None])
    same(applied("Sub", X, X[0, 0, 0], opset=6, broadcast=1)[0], X - X[0, 0, 0])
    same(applied("PRelu", X, b / 9, opset=6)[0], np.where(X < 0, X * b[:, None, None] / 9, X))


def test_softmax_flattened_before_version_13() -> None:
    powers = np.exp(X)
    same(applied("Softmax", X, opset=11)[0], powers / powers.sum((1, 2, 3), keepdims=True))
    same(applied("Softmax", X, opset=11, axis=2)[0], powers / powers.sum((2, 3), keepdims=True))
    same(applied("Softmax", X, opset=13)[0], powers / powers.sum(-1, keepdims=True))


@pytest.mark.parametrize(
    ("op", "old", "new", "attrs", "operands", "want"),
    [
        ("Squeeze", 11, 13, {"axes": [0]}, [[0]], X[:1][0]),
        ("Unsqueeze", 11, 13, {"axes": [1]}, [[1]], X[:1][:, None]),
        ("ReduceSum", 11, 13, {"axes": [1, 2]}, [[1, 2]], X[:1].sum((1, 2), keepdims=True)),
        ("ReduceMean", 13, 18, {"axes": [-1]}, [[-1]], X[:1].mean(-1, keepdims=True)),
        ("Slice", 9, 13, {"starts": [1], "ends": [3], "axes": [2]}, [[1], [3], [2]], X[:1, :, 1:3]),
        ("Tile", 6, 13, None, [[1, 2, 1, 1]], np.tile(X[:1], (1, 2, 1, 1))),
    ],
)
def test_attributes_that_became_operands(
    op: str, old: int, new: int, attrs: Any, operands: list[Any], want: Any
) -> None:
    x = X[:1]
    arrays = [np.array(o) for o in operands]
    same(applied(op, x, *arrays, opset=new)[0], want)
    if attrs is None:
        same(applied(op, x, *arrays, opset=old)[0], want)
    else:
        same(applied(op, x, opset=old, **attrs)[0], want)


def test_pad_clip_and_split() -> None:
    matrix = X[0, 0]
    want = np.pad(matrix, ((1, 0), (0, 2)), constant_values=7)
    same(applied("Pad", matrix, opset=2, pads=[1, 0, 0, 2], value=7.0)[0], want)
    seven = np.float32(7)
    same(applied("Pad", matrix, np.array([1, 0, 0, 2]), seven, opset=13)[0], want)
    some = applied("Pad", matrix, np.array([1, 0]), seven, np.array([0]), opset=18)[0]
    same(some, np.pad(matrix, ((1, 0), (0, 0)), constant_values=7))
    same(applied("Clip", X, opset=6, min=-0.5)[0], np.maximum(X, -0.5))
    same(applied("Clip", X, None, np.float32(0.25), opset=13)[0], np.minimum(X, 0.25))
    by_attribute = applied("Split", X, count=2, opset=2, split=[1, 4], axis=3)
    by_operand = applied("Split", X, np.array([1, 4]), count=2, opset=13, axis=3)
    for left, right in (by_attribute, by_operand):
        same(left, X[..., :1])
        same(right, X[..., 1:])
    parts = applied("Split", X, count=3, opset=18, axis=3, num_outputs=3)
    assert [p.shape[3] for p in parts] == [2, 2, 1]


def test_top_k_and_cumulative_sums() -> None:
    rows = X[0, 0]
    want = -np.sort(-rows, axis=-1)[:, :2]
    same(applied("TopK", rows, count=2, opset=9, k=2)[0], want)
    same(applied("TopK", rows, np.array([2]), count=2, opset=11)[0], want)
    least = applied("TopK", rows, np.array([2]), count=2, opset=11, largest=0)[0]
    same(least, np.sort(rows, axis=-1)[:, :2])
    same(applied("CumSum", rows, np.array(1), opset=14)[0], rows.cumsum(1))


def test_upsample_and_the_first_resize() -> None:
    image = X[:, :, :2, :2]
    want = image.repeat(2, axis=2).repeat(3, axis=3)
    scales = [1.0, 1.0, 2.0, 3.0]
    same(applied("Upsample", image, opset=7, scales=scales)[0], want)
    same(applied("Upsample", image, np.array(scales, np.float32), opset=9)[0], want)
    same(applied("Resize", image, np.array(scales, np.float32), opset=10)[0], want)


def test_dropout_passes_everything_when_a_model_is_run() -> None:
    for opset in (7, 10, 12, 22):
        got, mask = applied("Dropout", X, count=2, opset=opset)
        same(got, X)
        assert mask.dtype == (np.bool_ if opset >= 10 else np.float32)
        assert mask.all()


def test_batch_norm_of_old_versions() -> None:
    parameters = [RNG.uniform(0.5, 1.5, 3).astype(np.float32) for _ in range(4)]
    scale, bias, mean, var = (p[:, None, None] for p in parameters)
    want = (X - mean) / np.sqrt(var + 1e-5) * scale + bias
    for opset in (7, 9, 14, 15):
        same(applied("BatchNormalization", X, *parameters, opset=opset)[0], want)


def test_casts_by_name_and_by_number() -> None:
    assert applied("Cast", X, opset=1, to="INT32")[0].dtype == np.int32
    assert applied("Cast", X, opset=6, to=7)[0].dtype == np.int64
