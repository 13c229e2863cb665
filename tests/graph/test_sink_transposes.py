"""Images with channels last between operators that take channels first: transposes cancel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tilewright.graph import (
    Builder,
    Call,
    Module,
    PassContext,
    PassVerifier,
    Step,
    Value,
    evaluate,
    run_passes,
)
from tilewright.graph.passes import algebra, constant_folding, dead_code, sink_transposes

STEPS = [Step(sink_transposes), Step(algebra), Step(constant_folding), Step(dead_code)]
RNG = np.random.default_rng(2)
LAST, FIRST = (0, 2, 3, 1), (0, 3, 1, 2)


def conv(b: Builder, x: Value, outputs: int = 4) -> Value:
    """A convolution of an image with channels last."""
    channels = x.tensor.static_shape[-1]
    weight = RNG.standard_normal((outputs, channels, 3, 3)).astype(np.float32)
    y = b.conv(b.transpose(x, axes=FIRST), weight, pads=[1, 1, 1, 1])
    return b.transpose(y, axes=LAST)


def module(middle: Callable[[Builder, Value], Value]) -> Module:
    """Something between two convolutions."""
    b = Builder()
    x = b.input("x", "f32", [1, 6, 7, 4])
    b.output(conv(b, middle(b, conv(b, x))))
    return b.build()


def transposes(m: Module) -> int:
    calls = [b.expr for b in m.main.body if isinstance(b.expr, Call)]
    return sum(c.op.name == "transpose" for c in calls)


def residual(b: Builder, x: Value) -> Value:
    y = conv(b, b.relu(x))
    return b.relu(b.add(y, x))


def scaled(b: Builder, x: Value) -> Value:
    return b.add(b.mul(x, np.arange(4, dtype=np.float32)), np.float32(2))


def squeezed(b: Builder, x: Value) -> Value:
    mean = b.mean(x, axes=[1, 2], keepdims=True)
    return b.mul(x, b.sigmoid(mean))


def joined(b: Builder, x: Value) -> Value:
    y = b.pad(conv(b, x, 2), before=[0, 0, 0, 1], after=[0, 0, 0, 0])
    z = b.slice(b.concat(x, y, axis=3), starts=[1], ends=[5], axes=[3])
    return b.pad(z, before=[0, 1, 0, 0], after=[0, 0, 2, 0])


def tabled(b: Builder, x: Value) -> Value:
    steps = b.cast(b.clip(x, np.float32(0), np.float32(9)), dtype="int32")
    return b.take(b.constant(RNG.standard_normal(10).astype(np.float32)), steps, mode="hold")


def of_bytes(b: Builder, x: Value) -> Value:
    stored = b.quantize(x, np.float32(0.1), np.int8(3))
    made = b.byte_table(stored, b.constant(RNG.integers(-9, 9, 256).astype(np.int8)))
    return b.dequantize(made, np.float32(0.2), np.int8(1))


def quantized(b: Builder, x: Value) -> Value:
    stored = b.quantize(x, np.float32(0.1), np.int8(3))
    total = b.sub(b.cast(stored, dtype="int32"), np.int32(3))
    numbers = [b.constant(v, "int32") for v in ([1 << 30] * 4, [31, 32, 33, 34])]
    again = b.requantize(total, *numbers, zero=1, low=-128, high=127, dtype="int8")
    return b.dequantize(again, np.float32(0.2), np.int8(1))


@pytest.mark.parametrize(
    "middle", [residual, scaled, squeezed, joined, tabled, of_bytes, quantized]
)
def test_only_the_ends_are_transposed(middle: Any) -> None:
    m = module(middle)
    x = RNG.standard_normal((1, 6, 7, 4)).astype(np.float32)
    with PassContext(instruments=[PassVerifier()]):
        changed = run_passes(m, STEPS)
    assert transposes(changed) == 2
    expected, found = evaluate(m, [x])[0], evaluate(changed, [x])[0]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_what_is_no_image_stays() -> None:
    """The keys of attention have the same order of axes."""
    b = Builder()
    q, k = (b.input(n, "f32", [1, 5, 2, 8]) for n in "qk")
    transposed = b.mul(b.transpose(k, axes=LAST), np.float32(0.5))
    b.output(b.matmul(b.transpose(q, axes=(0, 2, 1, 3)), transposed))
    m = b.build()
    assert [b.expr for b in sink_transposes(m).main.body] == [b.expr for b in m.main.body]


def test_an_operand_with_channels_last_of_its_own() -> None:
    """Moving the transpose would only bring another."""
    b = Builder()
    x, y = (b.input(n, "f32", [1, 6, 7, 4]) for n in "xy")
    b.output(b.add(conv(b, x), y))
    m = b.build()
    assert transposes(sink_transposes(m)) == transposes(m)
