"""Quantized models that are written as products of floats: computed in bytes, and right."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.graph import Builder, Call, Module, PassContext, Step, evaluate, passes
from tilewright.graph.passes import quantized_products
from tilewright.kernels.levels import kernel_levels
from tilewright.target import why_not_here

VNNI = tw.Target.of("llvm -mcpu=cascadelake")
PAIRS = tw.Target.of("llvm -mcpu=haswell")
PLAIN = tw.Target.of("llvm -mcpu=x86-64-v2")


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def stored(dtype: str, *shape: int) -> Any:
    info = np.iinfo(dtype)
    return rng().integers(info.min, info.max, shape, endpoint=True).astype(dtype)


def calls(module: Module) -> list[Call]:
    return [b.expr for b in module.main.body if isinstance(b.expr, Call)]


def operators(module: Module) -> list[str]:
    return [c.op.name for c in calls(module)]


def conv_module(
    image: str, zero: int, weight: Any, scale: Any, weight_zero: Any, **attrs: Any
) -> Module:
    b = Builder("main")
    x = b.input("x", image, ("n", weight.shape[1] * attrs.get("groups", 1), "h", "w"))
    real = b.dequantize(x, np.float32(0.02), np.array(zero, image))
    weights = b.dequantize(weight, scale, weight_zero, axis=0)
    bias = b.dequantize(stored("int32", weight.shape[0]) >> 20, np.float32(0.004), None)
    y = b.relu(b.conv(real, weights, bias, **attrs))
    b.output(b.quantize(y, np.float32(0.5), np.uint8(3)))
    return b.build()


def check(module: Module, *arrays: Any) -> None:
    """One step of quantization apart, where a sum lies between two."""
    model = tw.compile(module, threads=1)
    for got, want in zip(model.run(list(arrays)), evaluate(module, list(arrays)), strict=True):
        apart = np.abs(got.astype(np.float64) - want)
        assert apart.max() <= 1 and (apart > 0).mean() < 0.01


@pytest.mark.parametrize(("image", "zero"), [("uint8", 0), ("uint8", 114), ("int8", -7)])
@pytest.mark.parametrize("attrs", [{}, {"pads": [1] * 4}, {"pads": [1] * 4, "strides": [2, 2]}])
def test_convolutions(image: str, zero: int, attrs: Any) -> None:
    scales = rng().uniform(0.001, 0.01, 24).astype(np.float32)
    module = conv_module(
        image, zero, stored("int8", 24, 16, 3, 3), scales, np.zeros(24, np.int8), **attrs
    )
    changed = quantized_products(VNNI)(module)
    (call,) = [c for c in calls(changed) if c.op.name == "conv"]
    assert call.attrs["dtype"] is not None, "sums of bytes"
    (plain,) = [c for c in calls(quantized_products(PLAIN)(module)) if c.op.name == "conv"]
    assert plain.attrs["dtype"] is None, "it has no instructions for bytes"
    array = stored(image, 2, 16, 9, 11)
    for got, want in zip(evaluate(changed, [array]), evaluate(module, [array]), strict=True):
        np.testing.assert_allclose(got, want, atol=1)
    check(module, array)


_WINDOWS: list[dict[str, Any]] = [
    {"pads": [1] * 4},
    {"pads": [2, 1, 0, 2], "strides": [2, 1]},
    {"pads": [2] * 4, "dilations": [2, 2]},
]
_IMAGES = [("uint8", 0), ("uint8", 255), ("int8", -128)]


@pytest.mark.parametrize(
    ("image", "zero", "attrs", "channels"),
    [
        # Every two of type, window and number of channels meet.
        (*image, window, (16, 19)[(i + k) % 2])
        for i, image in enumerate(_IMAGES)
        for k, window in enumerate(_WINDOWS)
    ],
)
def test_depthwise_convolutions(image: str, zero: int, attrs: Any, channels: int) -> None:
    scales = rng().uniform(0.001, 0.01, channels).astype(np.float32)
    weight = stored("int8", channels, 1, 3, 3)
    module = conv_module(image, zero, weight, scales, None, **attrs, groups=channels)
    for target in (VNNI, PLAIN):
        changed = quantized_products(target)(module)
        (call,) = [c for c in calls(changed) if c.op.name == "conv"]
        assert call.args[0] is changed.main.params[0], "bytes are read as they are"
        array = stored(image, 2, channels, 9, 11)
        np.testing.assert_array_equal(evaluate(changed, [array]), evaluate(module, [array]))
    check(module, array)


def test_pairs_of_16_bits_multiply_bytes_where_winograd_is_not_faster() -> None:
    winograd = Step(passes.winograd(PAIRS), 3, "cpu")
    for kernel, in_bytes in ((1, True), (3, False)):
        weight = stored("int8", 64, 64, kernel, kernel)
        pads = [kernel // 2] * 4
        module = conv_module("uint8", 5, weight, np.float32(0.003), None, pads=pads)
        for disabled in ((), ("winograd",)):
            with PassContext(disabled_passes=disabled):
                changed = quantized_products(PAIRS, winograd)(module)
            (call,) = [c for c in calls(changed) if c.op.name == "conv"]
            assert (call.attrs["dtype"] is not None) == (in_bytes or bool(disabled))


@pytest.mark.parametrize("image", ["uint8", "int8"])
@pytest.mark.parametrize("size", [("n", 16, "h", "w"), (1, 16, 9, 11)])
def test_bytes_on_avx2_go_by_pairs(image: str, size: Any) -> None:
    """Also at the ends of the range: no sum of two products saturates."""
    least, most = np.iinfo(image).min, np.iinfo(image).max
    weight = np.full((24, 16, 1, 1), -128, np.int8)
    weight[::2] = 127
    b = Builder("main")
    x = b.input("x", image, size)
    real = b.dequantize(x, np.float32(1), np.array(most, image))
    weights = b.dequantize(weight, np.float32(1), None, axis=0)
    b.output(b.conv(real, weights))
    module = b.build()
    model = tw.compile(module, target="llvm -mcpu=haswell -num-cores=2")
    assert isinstance(model, tw.Model)
    (name,) = [k for k in model.kernels if "conv" in k]
    levels = kernel_levels(model.ir(name), model.target)
    assert "vpmaddwd" in levels.asm and "vpmulld" not in levels.asm
    array = np.full((1, 16, 9, 11), least, image)
    array[0, :, ::2] = most
    array[0, ::2, 4] = least
    if not why_not_here(PAIRS.triple, PAIRS.features):
        np.testing.assert_array_equal(model.run([array])[0], evaluate(module, [array])[0])


@pytest.mark.parametrize(("image", "zero"), [("uint8", 255), ("int8", -128)])
@pytest.mark.parametrize("groups", [2, 4])
def test_groups_of_channels(image: str, zero: int, groups: int) -> None:
    weight = stored("int8", 64, 64 // groups, 3, 3)
    module = conv_module(image, zero, weight, np.float32(0.002), None, pads=[1] * 4, groups=groups)
    changed = quantized_products(VNNI)(module)
    (call,) = [c for c in calls(changed) if c.op.name == "conv"]
    assert call.attrs["dtype"] is not None, "sums of bytes"
    array = stored(image, 2, 64, 9, 11)
    np.testing.assert_allclose(evaluate(changed, [array]), evaluate(module, [array]), atol=1)
    check(module, array)
    model = tw.compile(
        module, target="llvm -mcpu=cascadelake -num-cores=2", shapes={"x": (1, 64, 9, 11)}
    )
    assert isinstance(model, tw.Model)
    (name,) = [k for k in model.kernels if "conv" in k]
    assert "vpdpbusd" in kernel_levels(model.ir(name), model.target).asm


def test_groups_that_fill_no_instruction_stay_in_floats() -> None:
    module = conv_module("uint8", 3, stored("int8", 24, 12, 3, 3), np.float32(0.01), None, groups=2)
    (call,) = [c for c in calls(quantized_products(VNNI)(module)) if c.op.name == "conv"]
    assert call.attrs["dtype"] is None


@pytest.mark.parametrize(("image", "zero"), _IMAGES)
@pytest.mark.parametrize(
    "attrs",
    [
        {"strides": [2, 2], "pads": [1] * 4},
        {"strides": [2, 1], "pads": [0, 1, 1, 0], "output_pads": [1, 0]},
        {"strides": [3, 2]},
        {},
    ],
)
def test_transposed_convolutions(image: str, zero: int, attrs: Any) -> None:
    b = Builder("main")
    x = b.input("x", image, (2, 16, 5, 7))
    real = b.dequantize(x, np.float32(0.02), np.array(zero, image))
    scales = rng().uniform(0.001, 0.01, 24).astype(np.float32)
    weights = b.dequantize(stored("int8", 16, 24, 4, 3), scales, None, axis=1)
    bias = rng().standard_normal(24).astype(np.float32)
    y = b.relu(b.conv_transpose(real, weights, bias, **attrs))
    b.output(b.quantize(y, np.float32(0.5), np.uint8(3)))
    module = b.build()
    changed = quantized_products(VNNI)(module)
    assert "conv_transpose" not in operators(changed)
    array = stored(image, 2, 16, 5, 7)
    np.testing.assert_allclose(evaluate(changed, [array]), evaluate(module, [array]), atol=1)
    check(module, array)


def test_depthwise_sums_that_floats_cannot_hold_stay() -> None:
    weight = np.full((8, 1, 24, 24), 127, np.int8)
    module = conv_module("uint8", 3, weight, np.float32(0.01), None, groups=8)
    (call,) = [c for c in calls(quantized_products(VNNI)(module)) if c.op.name == "conv"]
    assert call.attrs["dtype"] is None


@pytest.mark.parametrize("cpu", ["cascadelake", "sapphirerapids", "neoverse-n1"])
def test_images_of_any_size_are_convolved_by_instructions_for_bytes(cpu: str) -> None:
    module = conv_module(
        "uint8", 0, stored("int8", 64, 64, 3, 3), np.float32(0.003), None, pads=[1] * 4
    )
    model = tw.compile(module, target=f"llvm -mcpu={cpu} -num-cores=2")
    assert isinstance(model, tw.Model)
    (name,) = [k for k in model.kernels if "conv" in k]
    assert "tensor_intrin" in kernel_levels(model.ir(name), model.target).scheduled


def test_weights_take_in_their_zero_points_where_they_can() -> None:
    taken = conv_module("uint8", 5, stored("uint8", 16, 16, 1, 1), np.float32(0.003), np.uint8(128))
    assert "sub" in operators(quantized_products(VNNI)(taken))
    check(taken, stored("uint8", 1, 16, 5, 6))
    too_far = conv_module("uint8", 5, stored("uint8", 16, 16, 1, 1), np.float32(0.003), np.uint8(3))
    (conv,) = [c for c in calls(quantized_products(VNNI)(too_far)) if c.op.name == "conv"]
    assert conv.attrs["dtype"] is None, "they do not fit signed bytes"
    check(too_far, stored("uint8", 1, 16, 5, 6))


@pytest.mark.parametrize("transposed", [False, True])
def test_matrices(transposed: bool) -> None:
    b = Builder("main")
    x = b.input("x", "uint8", ("n", 40))
    real = b.dequantize(x, np.float32(0.02), np.uint8(120))
    scales = rng().uniform(0.001, 0.01, 24).astype(np.float32)
    array = stored("int8", 24, 40) if transposed else stored("int8", 40, 24)
    weights = b.dequantize(array, scales, None, axis=0 if transposed else 1)
    bias = rng().standard_normal(24).astype(np.float32)
    y = b.gemm(real, weights, bias, transpose_b=transposed)
    z = y if transposed else b.add(y, b.matmul(real, weights))
    b.output(b.quantize(z, np.float32(0.05), np.uint8(100)))
    module = b.build()
    names = operators(quantized_products(VNNI)(module))
    assert names.count("matmul_integer") == (1 if transposed else 2) and "gemm" not in names
    for rows in (1, 7):
        check(module, stored("uint8", rows, 40))


def attention_module(length: Any, transposed: bool) -> Module:
    """Attention with all that it computes in bytes."""
    b = Builder("main")
    shapes = ("n", 2, length, 16), ("n", 2, *((length, 16) if transposed else (16, length)))
    q, k, v = (b.input(n, "uint8", s) for n, s in zip("qkv", (*shapes, shapes[0]), strict=True))
    queries = b.dequantize(q, np.float32(0.02), np.uint8(120))
    keys = b.dequantize(k, np.float32(0.03), np.uint8(0))
    scores = b.matmul(queries, keys, transpose_b=transposed)
    stored_scores = b.quantize(scores, np.float32(0.05), np.uint8(128))
    shares = b.softmax(b.dequantize(stored_scores, np.float32(0.05), np.uint8(128)), axis=-1)
    stored_shares = b.quantize(shares, np.float32(1 / 255), np.uint8(0))
    weights = b.dequantize(stored_shares, np.float32(1 / 255), np.uint8(0))
    y = b.matmul(weights, b.dequantize(v, np.float32(0.01), np.uint8(99)))
    b.output(b.quantize(y, np.float32(0.02), np.uint8(64)))
    return b.build()


@pytest.mark.parametrize("transposed", [False, True])
def test_products_of_two_computed_tensors(transposed: bool) -> None:
    module = attention_module(24, transposed)
    assert operators(quantized_products(VNNI)(module)).count("matmul_integer") == 2
    for plain in (PAIRS, PLAIN):
        assert "matmul_integer" not in operators(quantized_products(plain)(module))
    keys = stored("uint8", 2, 2, *((24, 16) if transposed else (16, 24)))
    check(module, stored("uint8", 2, 2, 24, 16), keys, stored("uint8", 2, 2, 24, 16))


def test_products_of_two_matrices_of_any_size_stay_in_floats() -> None:
    names = operators(quantized_products(VNNI)(attention_module("length", False)))
    assert "matmul_integer" not in names


@pytest.mark.parametrize(("depth", "there"), [(4, False), (33_025, True), (33_026, False)])
def test_products_of_two_are_long_enough_and_do_not_wrap_around(depth: int, there: bool) -> None:
    b = Builder("main")
    x, y = b.input("x", "uint8", (8, depth)), b.input("y", "uint8", (depth, 8))
    reals = (b.dequantize(v, np.float32(0.02), np.uint8(0)) for v in (x, y))
    b.output(b.matmul(*reals))
    module = b.build()
    assert ("matmul_integer" in operators(quantized_products(VNNI)(module))) == there
    if there:
        most = [np.full((8, depth), 255, np.uint8), np.full((depth, 8), 255, np.uint8)]
        (got,) = tw.compile(module, threads=1).run(most)
        # Without products of bytes, floats are added up.
        rtol = 1e-6 if tw.Target.of("llvm").has_byte_products else 1e-3
        np.testing.assert_allclose(got, 255**2 * depth * 0.02**2, rtol=rtol)


def test_scales_that_are_computed_stay() -> None:
    b = Builder("main")
    x, scale = b.input("x", "uint8", ("n", 40)), b.input("scale", "f32", ())
    weights = b.dequantize(stored("int8", 40, 24), np.float32(0.01), None)
    b.output(b.matmul(b.dequantize(x, scale, None), weights))
    assert "matmul_integer" not in operators(quantized_products(VNNI)(b.build()))


def test_sums_that_might_wrap_around_stay_in_floats() -> None:
    b = Builder("main")
    x = b.input("x", "uint8", ("n", 70_000))
    weights = b.dequantize(np.full((70_000, 8), 127, np.int8), np.float32(0.01), None)
    b.output(b.matmul(b.dequantize(x, np.float32(0.02), np.uint8(0)), weights))
    assert "matmul_integer" not in operators(quantized_products(VNNI)(b.build()))
