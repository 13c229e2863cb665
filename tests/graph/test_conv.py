"""Convolutions against NumPy: dimensions, groups, strides, dilations, padding on one side."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.graph.harness import check
from tests.graph.interpreted import check_definition
from tilewright.graph import Builder, evaluate, find_op
from tilewright.ir import DType
from tilewright.support.errors import UserError

RNG = np.random.default_rng(7)


def normal(*shape: int, dtype: Any = "f4") -> Any:
    return RNG.standard_normal(shape).astype(dtype)


def test_conv_natively() -> None:
    x, w = normal(2, 3, 9, 11), normal(5, 3, 3, 3)
    check("conv", [x, w, normal(5)], pads=[1, 1, 1, 1], symbolic=False, atol=1e-5)
    check("conv", [x, w], strides=[2, 2], pads=[1, 0, 2, 1], symbolic=False, atol=1e-5)
    check("conv", [normal(1, 4, 8, 8), normal(4, 1, 3, 3)], groups=4, symbolic=False, atol=1e-5)
    check("conv", [normal(1, 4, 8, 8), normal(6, 2, 3, 3)], groups=2, symbolic=False, atol=1e-5)


@pytest.mark.parametrize("channels", [(34, 34), (7, 5), (16, 6), (1, 3)])
@pytest.mark.parametrize("size", [(7, 7), (28, 5), (1, 1), ("h", "w")])
def test_each_pixel_by_itself_in_groups(channels: tuple[int, int], size: tuple[Any, Any]) -> None:
    """Products in which pixels are one dimension, with what follows in their tiles."""
    inputs, outputs = channels
    x = normal(2, 3 * inputs, *((9, 5) if "h" in size else size))
    b = Builder()
    image = b.input("x", "f32", (2, 3 * inputs, *size))
    weight, bias = normal(3 * outputs, inputs, 1, 1), normal(3 * outputs)
    made = b.relu(b.conv(image, weight, bias, groups=3))
    b.output(b.add(made, b.input("r", "f32", made.shape)))
    graph, values = b.build(), [x, normal(2, 3 * outputs, *x.shape[2:])]
    got = tw.compile(graph, "llvm -num-cores=2").run(values)[0]
    np.testing.assert_allclose(got, evaluate(graph, values)[0], atol=1e-4)


def test_conv_of_symbolic_images_natively() -> None:
    b = Builder()
    x = b.input("x", "f32", ("n", 3, "h", "w"))
    y = b.conv2d(x, normal(5, 3, 3, 3), normal(5), strides=[2, 2], pads=[1, 1, 1, 1])
    assert str(y.type) == "f32[n, 5, (h + 1) // 2, (w + 1) // 2]"
    check("conv", [normal(2, 3, 9, 11), normal(5, 3, 3, 3)], pads=[1] * 4, atol=1e-5)


CASES: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((1, 2, 9), (4, 2, 3), {"pads": [2, 1], "dilations": [2]}),
    ((2, 3, 5, 7), (4, 3, 1, 1), {}),
    ((1, 3, 5, 7), (4, 3, 3, 2), {"strides": [2, 3], "pads": [0, 1, 2, 0]}),
    ((1, 4, 5, 5), (6, 2, 3, 3), {"groups": 2, "pads": [1, 1, 1, 1]}),
    ((1, 3, 5, 5), (6, 1, 3, 3), {"groups": 3, "dilations": [2, 1]}),
    ((1, 3, 6), (3, 1, 3), {"groups": 3, "strides": [2]}),
    ((1, 2, 4, 4, 5), (3, 2, 2, 3, 2), {"pads": [1, 0, 0, 0, 1, 1], "strides": [1, 2, 1]}),
    ((0, 2, 4, 4), (3, 2, 3, 3), {}),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_conv(case: Any) -> None:
    shape, weights, attrs = case
    check_definition(
        "conv", [normal(*shape), normal(*weights), normal(weights[0])], atol=1e-5, **attrs
    )


@pytest.mark.parametrize("dtype", ["float16", "float64", "int32"])
def test_conv_of_types(dtype: str) -> None:
    x, w = RNG.integers(-3, 3, (1, 2, 5, 5)), RNG.integers(-3, 3, (3, 2, 3, 3))
    check_definition("conv", [x.astype(dtype), w.astype(dtype)], symbolic=False)


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize(("dtype", "fill"), [("uint8", 200), ("int8", -128), ("int8", 127)])
@pytest.mark.parametrize("sums", ["int32", "float32"])
def test_bytes_are_padded_with_their_zero_point(
    dtype: str, fill: int, sums: str, groups: int
) -> None:
    x, w = RNG.integers(-99, 99, (1, 4, 5, 6)), RNG.integers(-99, 99, (4, 4 // groups, 3, 3))
    attrs = {"pads": [1, 2, 0, 1], "strides": [2, 1], "groups": groups}
    inputs = [x.astype(dtype), w.astype("int8" if sums == "int32" else sums)]
    check_definition("conv", inputs, dtype=DType.of(sums), fill=fill, symbolic=False, **attrs)
    padded = np.pad(inputs[0], ((0, 0), (0, 0), (1, 0), (2, 1)), constant_values=fill)
    conv = find_op("conv").evaluate
    plain = {"pads": (), "strides": (2, 1), "groups": groups, "dilations": ()}
    want = conv([padded.astype("i8"), inputs[1].astype("i8"), None], plain)
    given = {**plain, "pads": (1, 2, 0, 1), "fill": fill, "dtype": DType.of(sums)}
    np.testing.assert_array_equal(conv([*inputs, None], given), want)


def test_padding_that_no_element_can_be_is_refused() -> None:
    b = Builder()
    x = b.input("x", "u8", (1, 4, 5, 5))
    with pytest.raises(UserError, match="is padded with -1"):
        b.conv(x, np.ones((4, 4, 3, 3), np.int8), dtype="int32", pads=[1] * 4, fill=-1)
    with pytest.raises(UserError, match="is padded with 3"):
        b.conv(b.cast(x, dtype="float32"), normal(4, 4, 3, 3), pads=[1] * 4, fill=3)


TRANSPOSED: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((1, 2, 4), (2, 3, 3), {}),
    ((2, 3, 4, 5), (3, 2, 3, 3), {"strides": [2, 3], "pads": [1, 1, 0, 2]}),
    ((1, 4, 3, 3), (4, 2, 3, 2), {"groups": 2, "strides": [2, 2], "output_pads": [1, 0]}),
    ((1, 2, 3, 3), (2, 1, 2, 2), {"dilations": [2, 2], "strides": [1, 2]}),
    ((1, 1, 2, 3, 2), (1, 2, 2, 2, 2), {"strides": [2, 1, 2], "pads": [0, 1, 0, 0, 0, 1]}),
    ((1, 1, 2), (1, 1, 2), {"strides": [4], "output_pads": [3]}),
]


@pytest.mark.parametrize("case", TRANSPOSED, ids=str)
def test_conv_transpose(case: Any) -> None:
    shape, weights, attrs = case
    bias = normal(weights[1] * attrs.get("groups", 1))
    inputs = [normal(*shape), normal(*weights), bias]
    check_definition("conv_transpose", inputs, atol=1e-5, **attrs)


def test_conv_transpose_natively() -> None:
    x, w = normal(1, 3, 6, 7), normal(3, 4, 4, 4)
    check("conv_transpose", [x, w], strides=[2, 2], pads=[1] * 4, symbolic=False, atol=1e-5)


def test_what_is_refused() -> None:
    b = Builder()
    x, w = b.input("x", "f32", ("n", 3, 8, 8)), b.input("w", "f32", (4, 3, 3, 3))
    refused = {
        "and of the weights, in 2 groups, differ: 3 and 6": {"groups": 2},
        "there are 3 pads for 2 spatial axes, not 4": {"pads": [1, 1, 1]},
        "the window cannot slide": {"strides": [0, 1]},
        "there is no place for the window": {"dilations": [4, 4]},
        "are negative": {"pads": [-1, 0, 0, 0]},
    }
    for reason, attrs in refused.items():
        with pytest.raises(UserError, match=reason):
            b.conv(x, w, **attrs)
    with pytest.raises(UserError, match="the bias and the output channels differ: 3 and 4"):
        b.conv(x, w, b.input("b", "f32", (3,)))
    with pytest.raises(UserError, match="differ in rank"):
        b.conv(x, b.input("v", "f32", (4, 3, 3)))


def test_what_symbolic_dimensions_must_fulfil() -> None:
    b = Builder()
    x, w = b.input("x", "f32", (1, 3, "h", 9)), b.input("w", "f32", (4, 3, 3, 3))
    conv = find_op("conv2d")
    conditions = conv.conditions(*conv.bind([x, w], {}))
    assert [str(c) for c, _ in conditions] == ["h - 3 >= 0"]
