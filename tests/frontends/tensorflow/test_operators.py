"""Operators against NumPy, written from TensorFlow's documentation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.frontends.keras.test_layers import convolved
from tests.frontends.tensorflow.files import (
    applied,
    const,
    frozen,
    kind,
    node,
    placeholder,
    results,
)

RNG = np.random.default_rng(0)


def real(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def ints(*values: int) -> Any:
    return np.array(values, np.int32)


def close(found: Any, wanted: Any) -> None:
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


X, Y, IMAGE = real(3, 4), real(3, 4), real(2, 6, 7, 3)


def test_arithmetic() -> None:
    close(applied("SquaredDifference", X, Y), (X - Y) ** 2)
    close(applied("DivNoNan", X, np.where(Y > 0, Y, 0)), np.where(Y > 0, X / Y, 0))
    close(applied("BiasAdd", IMAGE, real(3) * 0 + 2), IMAGE + 2)
    close(applied("Relu6", X * 9), np.clip(X * 9, 0, 6))
    close(applied("Erfc", np.float32(0)), 1)
    assert applied("FloorMod", ints(7, -7), ints(3, 3)).tolist() == [1, 2]
    assert applied("TruncateMod", ints(7, -7), ints(3, 3)).tolist() == [1, -1]
    assert applied("FloorDiv", ints(7, -7), ints(2, 2)).tolist() == [3, -4]
    assert applied("Cast", X * 9, DstT=kind("int32")).tolist() == np.trunc(X * 9).tolist()
    close(applied("Select", X[:, 0] > 0, X, Y), np.where(X[:, :1] > 0, X, Y))


def test_products() -> None:
    close(applied("MatMul", X, Y, transpose_b=True), X @ Y.T)
    a, b = real(2, 3, 4), real(2, 3, 5)
    close(applied("BatchMatMulV2", a, b, adj_x=True), a.swapaxes(1, 2) @ b)
    close(
        applied("MatrixBandPart", real(4, 4) * 0 + 1, constants={1: 1, 2: 0}),
        np.tri(4) - np.tri(4, k=-2),
    )


def test_images() -> None:
    w = real(3, 2, 3, 4)
    attrs: dict[str, Any] = {"strides": [1, 1, 1, 1], "data_format": "NHWC"}
    close(applied("Conv2D", IMAGE, constants={1: w}, padding="VALID", **attrs), convolved(IMAGE, w))
    explicit = [0, 0, 1, 0, 0, 2, 0, 0]
    padded = np.pad(IMAGE, [(0, 0), (1, 0), (0, 2), (0, 0)])
    found = applied(
        "Conv2D", IMAGE, constants={1: w}, padding="EXPLICIT", explicit_paddings=explicit, **attrs
    )
    close(found, convolved(padded, w))
    scale, shift, mean, variance = real(3), real(3), real(3), np.abs(real(3))
    given = {1: scale, 2: shift, 3: mean, 4: variance}
    found = applied("FusedBatchNormV3", IMAGE, constants=given, is_training=False, epsilon=0.01)
    close(found, (IMAGE - mean) / np.sqrt(variance + 0.01) * scale + shift)
    window: dict[str, Any] = {"ksize": [1, 2, 2, 1], "strides": [1, 2, 2, 1], "padding": "VALID"}
    blocks = IMAGE[:, :6, :6].reshape(2, 3, 2, 3, 2, 3)
    close(applied("MaxPool", IMAGE, **window), blocks.max((2, 4)))
    close(applied("Mean", IMAGE, constants={1: ints(1, 2)}), IMAGE.mean((1, 2)))


def test_a_transposed_convolution_has_the_size_that_is_asked_for() -> None:
    x, w = real(1, 3, 3, 2), real(2, 2, 4, 2)
    wanted = np.zeros((1, 7, 6, 4), np.float32)
    for i in range(3):
        for j in range(3):
            part = np.einsum("nc,hwoc->nhwo", x[:, i, j], w)
            wanted[:, 2 * i : 2 * i + 2, 2 * j : 2 * j + 2] += part
    attrs: dict[str, Any] = {"strides": [1, 2, 2, 1], "padding": "VALID"}
    given = {0: ints(1, 7, 6, 4), 1: w}
    close(applied("Conv2DBackpropInput", x, constants=given, **attrs), wanted)


def test_blocks_of_pixels() -> None:
    x = real(2, 4, 6, 3)
    given = {1: ints(2, 3), 2: np.zeros((2, 2), np.int32)}
    blocks = applied("SpaceToBatchND", x, constants=given)
    assert blocks.shape == (12, 2, 2, 3)
    close(blocks[:2], x[:, ::2, ::3])
    close(applied("BatchToSpaceND", blocks, constants=given), x)


@pytest.mark.parametrize(
    ("index", "masks", "wanted"),
    [
        (((1, 0), (3, 4), (1, 2)), {}, X[1:3, 0:4:2]),
        (
            ((0, -1), (0, 0), (1, 1)),
            {"begin_mask": 1, "end_mask": 1, "shrink_axis_mask": 2},
            X[:, -1],
        ),
        (
            ((0, 0, 1), (0, 0, 3), (1, 1, 1)),
            {"ellipsis_mask": 1, "new_axis_mask": 2},
            X[..., None, 1:3],
        ),
        (((-1,), (0,), (-1,)), {"begin_mask": 1, "end_mask": 1}, X[::-1]),
    ],
)
def test_strided_slices(index: Any, masks: dict[str, int], wanted: Any) -> None:
    given = {k + 1: ints(*v) for k, v in enumerate(index)}
    close(applied("StridedSlice", X, constants=given, **masks), wanted)


def test_shapes_and_indices() -> None:
    close(
        applied(
            "MirrorPad", X, constants={1: np.array([[1, 1], [2, 0]], np.int32)}, mode="SYMMETRIC"
        ),
        np.pad(X, [(1, 1), (2, 0)], "symmetric"),
    )
    close(applied("GatherV2", X, constants={1: ints(2, 0), 2: np.int32(1)}), X[:, [2, 0]])
    close(applied("Slice", X, constants={1: ints(1, 0), 2: ints(2, -1)}), X[1:3])
    close(applied("ReverseV2", X, constants={1: ints(1)}), X[:, ::-1])
    close(applied("Cumsum", X, constants={1: np.int32(1)}, exclusive=True), np.cumsum(X, 1) - X)
    hot = applied(
        "OneHot", ints(1, -1, 3), constants={1: np.int32(3), 2: np.float32(5), 3: np.float32(0)}
    )
    assert hot.tolist() == [[0, 5, 0], [0, 0, 0], [0, 0, 0]]
    assert applied("Where", X > 0).tolist() == np.argwhere(X > 0).tolist()
    assert (
        applied("Bucketize", X, boundaries={"list": {"f": [-1.0, 1.0]}}).tolist()
        == np.digitize(X, [-1, 1]).tolist()
    )


def test_shape_arithmetic_reaches_types() -> None:
    """The batch is read from a shape and put into another: it stays one symbolic dimension."""
    data = frozen(
        placeholder("x", None, 2, 3),
        node("Shape", "shape", "x", out_type=kind("int32")),
        const("zero", ints(0)),
        const("one", ints(1)),
        node("StridedSlice", "batch", "shape", "zero", "one", "one", shrink_axis_mask=1),
        const("six", np.int32(6)),
        node("Pack", "target", "batch", "six"),
        node("Reshape", "y", "x", "target"),
    )
    x = real(5, 2, 3)
    close(results(data, x)[0], x.reshape(5, 6))
