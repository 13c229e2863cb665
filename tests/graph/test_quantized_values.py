"""What lies between quantized products: moved, pooled and read as bytes, with the same answers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.graph import Builder, Call, Fused, Module, Value, evaluate, run_passes
from tilewright.graph.passes import quantized_products, widen_where_read

VNNI = tw.Target.of("llvm -mcpu=cascadelake")
SCALE, ZERO = np.float32(0.02), np.uint8(100)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def image(*shape: int, seed: int = 0) -> Any:
    return rng(seed).integers(0, 255, shape, endpoint=True).astype(np.uint8)


def real(b: Builder, x: Value) -> Any:
    return b.dequantize(x, SCALE, ZERO)


def operators(module: Module) -> list[str]:
    return [b.expr.op.name for b in module.main.body if isinstance(b.expr, Call)]


def same(module: Module, *arrays: Any) -> None:
    """Bit for bit, by the evaluator before and after, and natively."""
    changed = quantized_products(VNNI)(module)
    wanted = evaluate(module, list(arrays))
    for got, want in zip(evaluate(changed, list(arrays)), wanted, strict=True):
        np.testing.assert_array_equal(got, want)
    for got, want in zip(tw.compile(module).run(list(arrays)), wanted, strict=True):
        np.testing.assert_array_equal(got, want)


def test_there_and_back_is_nothing() -> None:
    for scale in (3e-5, 1.0, 7.3):
        b = Builder()
        x = b.input("x", "u8", (256,))
        y = b.dequantize(x, np.float32(scale), ZERO)
        b.output(b.quantize(y, np.float32(scale), ZERO))
        module = b.build()
        assert not operators(quantized_products(VNNI)(module))
        same(module, np.arange(256).astype(np.uint8))


def test_bytes_stand_for_numbers() -> None:
    """As exporters write softmax of rows that may all be masked."""
    b = Builder("main")
    x = b.input("x", "uint8", ("n", 8))
    real = b.dequantize(x, np.float32(0.02), np.uint8(3))
    y = b.where(b.isnan(real), np.float32(0), real)
    b.output(b.quantize(y, np.float32(0.02), np.uint8(3)))
    wild = b.dequantize(x, np.float32(np.inf), np.uint8(3))
    b.output(b.where(b.isnan(wild), np.float32(0), wild))
    module = b.build()
    names = operators(quantized_products(VNNI)(module))
    assert names == ["dequantize", "isnan", "where"], "those of the second result"
    (array,) = arrays = [np.arange(16, dtype=np.uint8).reshape(2, 8)]
    first, second = tw.compile(module).run(arrays)
    assert np.array_equal(first, array) and np.array_equal(second, evaluate(module, arrays)[1])


@pytest.mark.parametrize(
    ("scale", "zero"), [(0.021, 100), (0.02, 99), (0.0, 100), (-0.02, 100), (np.nan, 100)]
)
def test_other_scales_are_kept(scale: float, zero: int) -> None:
    b = Builder()
    x = b.input("x", "u8", (256,))
    b.output(b.quantize(real(b, x), np.float32(scale), np.uint8(zero)))
    module = b.build()
    assert operators(quantized_products(VNNI)(module)) == ["dequantize", "quantize"]
    np.testing.assert_array_equal(
        tw.compile(module).run([np.arange(256).astype(np.uint8)])[0],
        evaluate(module, [np.arange(256).astype(np.uint8)])[0],
    )


@pytest.mark.parametrize("pads", [[0] * 4, [1, 2, 1, 0]])
def test_the_greatest_bytes(pads: list[int]) -> None:
    b = Builder()
    x = b.input("x", "u8", (1, 16, 9, 9))
    y = b.max_pool(real(b, x), kernel=[3, 3], strides=[2, 2], pads=pads)
    b.output(b.quantize(y, SCALE, ZERO))
    module = b.build()
    assert operators(quantized_products(VNNI)(module)) == ["max_pool"]
    same(module, image(1, 16, 9, 9))


def test_images_that_are_put_together() -> None:
    b = Builder()
    x, y = b.input("x", "u8", (1, 16, 6, 6)), b.input("y", "f32", (1, 16, 3, 3))
    large = b.resize(y, scales=[1, 1, 2, 2], mode="nearest")
    joined = b.concat(real(b, x), large, axis=1)
    b.output(b.quantize(joined, SCALE, ZERO))
    module = b.build()
    names = operators(quantized_products(VNNI)(module))
    assert names == ["quantize", "resize", "concat"], "bytes are moved"
    same(module, image(1, 16, 6, 6), rng(1).standard_normal((1, 16, 3, 3)).astype(np.float32))


def test_sums_of_neighbours_are_not_moved() -> None:
    b = Builder()
    x = b.input("x", "f32", (1, 4, 3, 3))
    b.output(b.quantize(b.resize(x, scales=[1, 1, 2, 2], mode="linear"), SCALE, ZERO))
    assert operators(quantized_products(VNNI)(b.build())) == ["resize", "quantize"]


# ---- what is clipped ----------------------------------------------------------------------------


def clipped(low: float | None, high: float | None, scale: float, zero: int) -> Module:
    b = Builder()
    x = b.input("x", "f32", (64,))
    bounds = [None if v is None else np.float32(v) for v in (low, high)]
    b.output(b.quantize(b.clip(x, *bounds), np.float32(scale), np.uint8(zero)))
    return b.build()


@pytest.mark.parametrize(
    ("low", "high", "scale", "zero", "goes"),
    [
        (0.0, 6.0, 6 / 255, 0, True),
        (0.0, None, 0.01, 0, True),
        (None, 3.0, 0.01, 10, True),
        (0.0, 6.0, 6.1 / 255, 0, False),
        (0.0, 6.0, 6 / 255, 3, False),
        (-0.02, 6.0, 0.02, 1, True),
        (0.0, 6.0, -1.0, 0, False),
        (np.nan, 6.0, 0.01, 0, False),
    ],
)
def test_bounds_beyond_those_of_bytes(
    low: float | None, high: float | None, scale: float, zero: int, goes: bool
) -> None:
    module = clipped(low, high, scale, zero)
    assert ("clip" not in operators(quantized_products(VNNI)(module))) == goes
    numbers = np.linspace(-10, 10, 60).astype(np.float32)
    same(module, np.concatenate([numbers, np.array([np.inf, -np.inf, 0, -0.0], np.float32)]))


# ---- what is read twice -------------------------------------------------------------------------


def excited() -> Module:
    """A squeeze-and-excite block between bytes."""
    b = Builder()
    x = b.input("x", "u8", (1, 32, 8, 8))
    bytes_ = rng(1).integers(-127, 127, (32, 32, 1, 1)).astype(np.int8)
    weight = b.dequantize(bytes_, np.float32(0.002), None)
    stored = b.quantize(b.relu(b.conv(real(b, x), weight)), np.float32(0.01), np.uint8(0))
    y = b.dequantize(stored, np.float32(0.01), np.uint8(0))
    share = b.sigmoid(b.mean(y, axes=[2, 3], keepdims=True))
    b.output(b.quantize(b.mul(y, share), np.float32(0.01), np.uint8(0)))
    return b.build()


def test_each_reader_makes_floats_of_bytes() -> None:
    module = excited()
    changed = widen_where_read(module)
    names = operators(changed)
    assert names.count("dequantize") == operators(module).count("dequantize") + 1
    array = image(1, 32, 8, 8)
    want = evaluate(module, [array])[0]
    np.testing.assert_array_equal(evaluate(changed, [array])[0], want)
    model = tw.compile(module)
    apart = np.abs(model.run([array])[0].astype(int) - want)
    assert apart.max() <= 1 and (apart > 0).mean() < 0.01
    assert isinstance(model, tw.Model)
    large = [
        v.dtype.name
        for b in model.graph.main.body
        if isinstance(b.expr, Fused)
        for v in b.outputs
        if v.tensor.size == 32 * 64
    ]
    assert large and set(large) == {"uint8"}, "images are stored as bytes alone"


def test_each_reader_makes_wide_integers_of_bytes() -> None:
    b = Builder()
    x = b.input("x", "i8", (1, 32, 8, 8))
    stored = b.clip(x, np.int8(-9), np.int8(50))
    wide = b.cast(stored, dtype="i32")
    total = b.sum(wide, axes=[2, 3], keepdims=True)
    b.output(b.mul(wide, total))
    module = b.build()
    assert operators(widen_where_read(module)).count("cast") == 2
    array = image(1, 32, 8, 8).astype(np.int8)
    model = tw.compile(module)
    np.testing.assert_array_equal(model.run([array])[0], evaluate(module, [array])[0])
    assert isinstance(model, tw.Model)
    bodies = [b.expr.graphs[0].body for b in model.graph.main.body if isinstance(b.expr, Fused)]
    kernels = [[b.expr.op.name for b in body if isinstance(b.expr, Call)] for body in bodies]
    assert kernels == [["cast", "sum"], ["cast", "mul"]], "between kernels lie bytes"


def test_graphs_without_bytes_stay_as_they_are() -> None:
    b = Builder()
    x = b.input("x", "f32", (1, 32, 8, 8))
    b.output(b.mul(x, b.global_avg_pool(x)))
    module = b.build()
    assert widen_where_read(module) is module
    assert run_passes(module, []) is module


@pytest.mark.parametrize(
    ("scales", "scale", "by_product"),
    [
        ((0.023, 0.017), 0.031, True),
        ((0.5, 3.0), 7.3, True),
        # Sums lie just between two numbers.
        ((1.0, 0.5), 0.6, False),
        ((0.1, 0.2), 1.0, False),
        ((0.1, 0.2), -0.3, False),
        ((0.1, 0.2), 1e-45, False),
    ],
)
def test_sums_of_two_bytes_are_multiplied_where_that_gives_the_same(
    scales: tuple[float, float], scale: float, by_product: bool
) -> None:
    b = Builder()
    every = np.arange(256)
    first, second = b.input("x", "i8", (256, 1)), b.input("y", "u8", (1, 256))
    x = b.dequantize(first, np.float32(scales[0]), np.int8(-3))
    y = b.dequantize(second, np.float32(scales[1]), np.uint8(100))
    b.output(b.quantize(b.add(x, y), np.float32(scale), np.int8(7)))
    module = b.build()
    assert ("mul" in operators(quantized_products(VNNI)(module))) == by_product
    if scale > 1e-30:
        columns, rows = (every - 128).astype(np.int8), every.astype(np.uint8)
        same(module, columns[:, None], rows[None, :])
