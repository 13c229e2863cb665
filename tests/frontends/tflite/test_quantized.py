"""Quantized operators: bit for bit what the reference kernels give, but where `steps` allows one.

Some answers are held against NumPy too. Its roundings (twice, but once for fully connected layers)
are what LiteRT's reference kernels were seen to do.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tests.frontends.tflite.peer import lite, ours, require_close
from tests.frontends.tflite.writer import Writer
from tilewright.frontends.tflite import from_tflite
from tilewright.graph import Call

RNG = np.random.default_rng(3)


def stored(dtype: str, *shape: int) -> Any:
    info = np.iinfo(dtype)
    return RNG.integers(info.min, info.max + 1, shape).astype(dtype)


def times(x: Any, factor: float) -> Any:
    """A whole number times a factor of 31 bits: the high half of the product is rounded, halves
    upward; then what the exponent takes off, halves away from zero."""
    part, exponent = math.frexp(factor)
    number = math.floor(part * 2**31 + 0.5)
    left, right = max(exponent, 0), max(-exponent, 0)
    high = ((np.asarray(x, np.int64) << left) * number + (1 << 30)) >> 31
    away = np.trunc(np.abs(high) / 2**right + 0.5).astype(np.int64)
    return np.sign(high) * away


def times_once(x: Any, factor: float) -> Any:
    """A whole number times a factor of 31 bits, rounded once, halves upward."""
    part, exponent = math.frexp(factor)
    shift = 31 - exponent
    number = math.floor(part * 2**31 + 0.5)
    return (np.asarray(x, np.int64) * number + (1 << (shift - 1))) >> shift


def held(x: Any, dtype: str, low: int | None = None, high: int | None = None) -> Any:
    info = np.iinfo(dtype)
    return np.clip(x, low or info.min, high or info.max).astype(dtype)


def single(data: tuple[Any, bytes], *inputs: Any, steps: int = 0) -> None:
    wanted, model = data
    if wanted is not None:
        require_close(ours(model, *inputs), [wanted])
    require_close(ours(model, *inputs), lite(model, *inputs), steps=steps)


# ---- products -----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("activation", [0, 1, 3])
def test_fully_connected(dtype: str, activation: int) -> None:
    x, w = stored(dtype, 5, 16), stored(dtype, 7, 16)
    zero_w = 0 if dtype == "int8" else 121
    zero_x, zero_y = (-9, -17) if dtype == "int8" else (120, 99)
    sx, sw, sy = np.float32(0.031), np.float32(0.0072), np.float32(0.17)
    bias = RNG.integers(-900, 900, 7).astype(np.int32)
    b = Writer()
    weights = b.constant(w, scale=sw, zero=zero_w)
    y = b.op(
        "FULLY_CONNECTED",
        [b.input(dtype, x.shape, scale=sx, zero=zero_x), weights, b.constant(bias, scale=sx * sw)],
        b.tensor(dtype, [5, 7], scale=sy, zero=zero_y),
        activation=activation,
    )
    total = (x.astype(np.int64) - zero_x) @ (w.astype(np.int64) - zero_w).T + bias
    scaled = times_once(total, float(sx) * float(sw) / float(sy)) + zero_y
    low = zero_y if activation else None
    high = zero_y + round(6 / sy) if activation == 3 else None
    single((held(scaled, dtype, low, high), b.model([y])), x)


def conv_sums(x: Any, w: Any, stride: int, pads: int) -> Any:
    """The convolution of images N×H×W×C by O×H×W×C, channels by themselves if C is 1."""
    x = np.pad(x, ((0, 0), (pads, pads), (pads, pads), (0, 0)))
    kernel = w.shape[1]
    size = (x.shape[1] - kernel) // stride + 1
    y = np.zeros((len(x), size, size, len(w)), np.int64)
    for i in range(size):
        for j in range(size):
            part = x[:, i * stride : i * stride + kernel, j * stride : j * stride + kernel]
            y[:, i, j] = np.einsum("nhwc,ohwc->no", part, w)
    return y


@pytest.mark.parametrize(("stride", "padding"), [(1, 0), (2, 1)])
def test_conv(stride: int, padding: int) -> None:
    x, w = stored("int8", 1, 9, 9, 5), stored("int8", 6, 3, 3, 5)
    sx, sy = np.float32(0.02), np.float32(0.9)
    sw = RNG.uniform(0.001, 0.02, 6).astype(np.float32)
    bias = RNG.integers(-900, 900, 6).astype(np.int32)
    centred = x.astype(np.int64) + 11
    sums = conv_sums(centred, w.astype(np.int64), stride, 1 - padding) + bias
    factors = [float(sx) * float(s) / float(sy) for s in sw]
    scaled = np.stack([times(sums[..., k], f) for k, f in enumerate(factors)], -1) + 4
    b = Writer()
    y = b.op(
        "CONV_2D",
        [
            b.input("int8", x.shape, scale=sx, zero=-11),
            b.constant(w, scale=sw),
            b.constant(bias, scale=sx * sw),
        ],
        b.tensor("int8", sums.shape, scale=sy, zero=4),
        version=3,
        padding=padding,
        stride_w=stride,
        stride_h=stride,
    )
    model = b.model([y])
    single((held(scaled, "int8"), model), x)
    require_close(ours(model, x, native=True), [held(scaled, "int8")])


def test_conv_of_unsigned_bytes() -> None:
    """Weights that do not fit into signed bytes once their zero point is taken out."""
    x, w = stored("uint8", 1, 6, 6, 3), stored("uint8", 4, 3, 3, 3)
    sx, sw, sy = np.float32(0.02), np.float32(0.01), np.float32(0.5)
    sums = conv_sums(x.astype(np.int64) - 100, w.astype(np.int64) - 30, 1, 1)
    b = Writer()
    weights = b.constant(w, scale=sw, zero=30)
    bias = b.constant(np.zeros(4, np.int32), scale=sx * sw)
    y = b.op(
        "CONV_2D",
        [b.input("uint8", x.shape, scale=sx, zero=100), weights, bias],
        b.tensor("uint8", sums.shape, scale=sy, zero=128),
        stride_w=1,
        stride_h=1,
    )
    product = float(np.float32(sx * sw)) / float(sy)
    single((held(times(sums, product) + 128, "uint8"), b.model([y])), x)


def test_depthwise() -> None:
    x, w = stored("int8", 1, 8, 8, 4), stored("int8", 1, 3, 3, 8)
    sw = RNG.uniform(0.001, 0.02, 8).astype(np.float32)
    b = Writer()
    y = b.op(
        "DEPTHWISE_CONV_2D",
        [
            b.input("int8", x.shape, scale=0.03, zero=7),
            b.constant(w, scale=sw, axis=3),
            b.constant(RNG.integers(-99, 99, 8).astype(np.int32), scale=0.03 * sw),
        ],
        b.tensor("int8", [1, 4, 4, 8], scale=0.2, zero=-3),
        version=3,
        stride_w=2,
        stride_h=2,
        multiplier=2,
        activation=1,
    )
    single((None, b.model([y])), x)


def test_transpose_conv() -> None:
    x, w = stored("int8", 1, 4, 4, 3), stored("int8", 5, 3, 3, 3)
    sw = RNG.uniform(0.001, 0.02, 5).astype(np.float32)
    b = Writer()
    y = b.op(
        "TRANSPOSE_CONV",
        [
            b.constant(np.array([1, 8, 8, 5], np.int32)),
            b.constant(w, scale=sw),
            b.input("int8", x.shape, scale=0.03, zero=7),
            b.constant(RNG.integers(-99, 99, 5).astype(np.int32), scale=0.03 * sw),
        ],
        b.tensor("int8", [1, 8, 8, 5], scale=0.2, zero=-3),
        version=3,
        stride_w=2,
        stride_h=2,
    )
    single((None, b.model([y])), x)


def test_batch_matmul() -> None:
    x, w = stored("int8", 2, 4, 6), stored("int8", 2, 6, 5)
    b = Writer()
    ins = [b.input("int8", v.shape, scale=0.02, zero=z) for v, z in ((x, 3), (w, -4))]
    y = b.op("BATCH_MATMUL", ins, b.tensor("int8", [2, 4, 5], scale=0.3, zero=2), version=2)
    total = (x.astype(np.int64) - 3) @ (w.astype(np.int64) + 4)
    factor = float(np.float32(0.02) ** 2) / float(np.float32(0.3))
    single((held(times(total, factor) + 2, "int8"), b.model([y])), x, w)


def test_conv_of_16_bits() -> None:
    x, w = stored("int16", 1, 6, 6, 3), stored("int8", 4, 3, 3, 3)
    sw = RNG.uniform(0.001, 0.02, 4).astype(np.float32)
    b = Writer()
    y = b.op(
        "CONV_2D",
        [
            b.input("int16", x.shape, scale=1e-4),
            b.constant(w, scale=sw),
            b.constant(RNG.integers(-9999, 9999, 4).astype(np.int64), scale=1e-4 * sw),
        ],
        b.tensor("int16", [1, 6, 6, 4], scale=2e-3),
        version=4,
        stride_w=1,
        stride_h=1,
    )
    single((None, b.model([y])), x)


# ---- elements -----------------------------------------------------------------------------------


def two(op: str, dtype: str, *, activation: int = 0, same: bool = False) -> bytes:
    b = Writer()
    zero = 0 if dtype == "int16" else 5
    scales = (0.02, 0.02, 0.02) if same else (0.02, 0.031, 0.045)
    ins = [b.input(dtype, [2, 300], scale=s, zero=zero) for s in scales[:2]]
    out = b.tensor(dtype, [2, 300], scale=scales[2], zero=zero)
    options: dict[str, Any] = {"activation": activation} if op in ("ADD", "SUB", "MUL") else {}
    return b.model([b.op(op, ins, out, version=2, **options)])


@pytest.mark.parametrize("op", ["ADD", "SUB", "MUL"])
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("activation", [0, 1])
def test_two_operands(op: str, dtype: str, activation: int) -> None:
    xs = [stored(dtype, 2, 300) for _ in range(2)]
    single((None, two(op, dtype, activation=activation)), *xs)


@pytest.mark.parametrize(("same", "rounded"), [(True, 1), (False, 2)])
def test_operands_with_the_largest_steps_are_not_rounded(same: bool, rounded: int) -> None:
    data = two("ADD", "int8", same=same)
    calls = [b.expr for b in from_tflite(data).main.body if isinstance(b.expr, Call)]
    assert sum(c.op.name == "requantize" for c in calls) == rounded
    xs = [np.repeat(np.arange(-128, 128), 3)[:600].reshape(2, 300).astype(np.int8)] * 2
    xs[1] = RNG.permutation(xs[1].ravel()).reshape(2, 300)
    single((None, data), *xs)


def test_the_least_shift_is_known() -> None:
    """That of factors below one half is more than 31, and one step of the arithmetic falls away."""
    data = two("MUL", "int8")
    calls = [b.expr for b in from_tflite(data).main.body if isinstance(b.expr, Call)]
    (call,) = [c for c in calls if c.op.name == "requantize"]
    shift = call.args[2]
    assert shift is not None and shift.constant is not None
    assert call.attrs["least"] == int(shift.constant) > 31


@pytest.mark.parametrize("op", ["MAXIMUM", "MINIMUM"])
def test_extremes(op: str) -> None:
    xs = [stored("int8", 2, 300) for _ in range(2)]
    single((getattr(np, op.lower())(*xs), two(op, "int8", same=True)), *xs)


def one(op: str, dtype: str, *, out: tuple[float, int], version: int = 1, **options: Any) -> bytes:
    b = Writer()
    x = b.input(dtype, [1, 16, 16], scale=0.04, zero=3)
    scale, zero = out
    y = b.op(
        op, [x], b.tensor(dtype, [1, 16, 16], scale=scale, zero=zero), version=version, **options
    )
    return b.model([y])


@pytest.mark.parametrize(
    ("op", "out", "options"),
    [
        ("LOGISTIC", (1 / 256, -128), {}),
        ("TANH", (1 / 128, 0), {}),
        ("ELU", (0.03, 1), {}),
        ("EXP", (0.6, -128), {}),
        ("ABS", (0.05, -9), {}),
        ("RELU", (0.03, -7), {}),
        ("RELU6", (6 / 255, -128), {}),
        ("LEAKY_RELU", (0.05, 4), {"alpha": 0.3}),
        ("HARD_SWISH", (0.05, 4), {}),
    ],
)
def test_functions(op: str, out: tuple[float, int], options: dict[str, Any]) -> None:
    x = stored("int8", 1, 16, 16)
    version = 2 if op in ("LOGISTIC", "TANH", "EXP", "ABS", "RELU", "RELU6", "LEAKY_RELU") else 1
    steps = 1 if op == "HARD_SWISH" else 0
    single((None, one(op, "int8", out=out, version=version, **options)), x, steps=steps)


def test_softmax() -> None:
    x = stored("int8", 1, 16, 16)
    single((None, one("SOFTMAX", "int8", out=(1 / 256, -128), version=2, beta=1.0)), x, steps=1)


def test_prelu() -> None:
    x, slope = stored("int8", 1, 4, 4, 8), stored("int8", 1, 1, 8)
    b = Writer()
    ins = [b.input("int8", x.shape, scale=0.04, zero=3), b.constant(slope, scale=0.01, zero=-5)]
    y = b.op("PRELU", ins, b.tensor("int8", x.shape, scale=0.05, zero=2))
    single((None, b.model([y])), x)


# ---- windows, shapes, scales --------------------------------------------------------------------


@pytest.mark.parametrize("op", ["AVERAGE_POOL_2D", "MAX_POOL_2D"])
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_pooling(op: str, dtype: str) -> None:
    x = stored(dtype, 1, 7, 7, 5)
    b = Writer()
    shared: dict[str, Any] = {"scale": 0.04, "zero": 3}
    how: dict[str, Any] = {
        "stride_w": 2,
        "stride_h": 2,
        "filter_w": 3,
        "filter_h": 3,
        "activation": 1,
    }
    ins = [b.input(dtype, x.shape, **shared)]
    y = b.op(op, ins, b.tensor(dtype, [1, 4, 4, 5], **shared), version=2, **how)
    single((None, b.model([y])), x)


@pytest.mark.parametrize("axes", [[1, 2], [3], [1]])
def test_mean(axes: list[int]) -> None:
    x = stored("int8", 1, 5, 6, 4)
    b = Writer()
    ins = [b.input("int8", x.shape, scale=0.04, zero=3), b.constant(np.array(axes, np.int32))]
    out = b.tensor("int8", x.mean(tuple(axes)).shape, scale=0.03, zero=-6)
    single((None, b.model([b.op("MEAN", ins, out, version=2)])), x)


def test_padding_is_the_zero_point() -> None:
    x = stored("int8", 2, 3)
    b = Writer()
    how: dict[str, Any] = {"scale": 0.04, "zero": 3}
    ins = [b.input("int8", x.shape, **how), b.constant(np.array([[0, 1], [2, 0]], np.int32))]
    y = b.op("PAD", ins, b.tensor("int8", [3, 5], **how), version=2)
    single((np.pad(x, ((0, 1), (2, 0)), constant_values=3), b.model([y])), x)


def test_concatenation_of_other_scales() -> None:
    x, y = stored("uint8", 2, 64), stored("uint8", 2, 64)
    b = Writer()
    ins = [b.input("uint8", [2, 64], scale=s, zero=z) for s, z in ((0.04, 3), (0.03, 99))]
    out = b.tensor("uint8", [2, 128], scale=0.035, zero=50)
    single((None, b.model([b.op("CONCATENATION", ins, out, axis=1)])), x, y)


@pytest.mark.parametrize("half_pixel", [False, True])
def test_resize_bilinear(half_pixel: bool) -> None:
    x = stored("int8", 1, 4, 5, 3)
    b = Writer()
    how: dict[str, Any] = {"scale": 0.04, "zero": 3}
    ins = [b.input("int8", x.shape, **how), b.constant(np.array([7, 9], np.int32))]
    out = b.tensor("int8", [1, 7, 9, 3], **how)
    y = b.op("RESIZE_BILINEAR", ins, out, version=3, half_pixel_centers=half_pixel)
    single((None, b.model([y])), x, steps=1)


def test_quantize() -> None:
    x = np.concatenate([RNG.uniform(-7, 7, 200), np.arange(-8, 8) * 0.025]).astype(np.float32)
    b = Writer()
    y = b.op(
        "QUANTIZE", [b.input("float32", x.shape)], b.tensor("int8", x.shape, scale=0.05, zero=4)
    )
    single((None, b.model([y])), x)


@pytest.mark.parametrize(
    ("source", "target"), [("int8", "int8"), ("uint8", "int8"), ("int8", "uint8")]
)
def test_requantize(source: str, target: str) -> None:
    x = stored(source, 4, 64)
    b = Writer()
    ins = [b.input(source, x.shape, scale=0.05, zero=4)]
    out = b.tensor(target, x.shape, scale=0.0381, zero=9)
    scaled = times(x.astype(np.int64) - 4, float(np.float32(0.05)) / float(np.float32(0.0381)))
    single((held(scaled + 9, target), b.model([b.op("QUANTIZE", ins, out, version=2)])), x)


def test_dequantize() -> None:
    x = stored("int8", 4, 8)
    b = Writer()
    y = b.op(
        "DEQUANTIZE", [b.input("int8", x.shape, scale=0.05, zero=4)], b.tensor("float32", x.shape)
    )
    single(((x.astype(np.float32) - 4) * np.float32(0.05), b.model([y])), x)
