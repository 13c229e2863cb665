"""Functions whose results become bytes are computed as exactly as bytes need."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import tilewright as tw
from tests.graph.test_quantized_products import VNNI, calls, check, operators, rng, stored
from tilewright.graph import Builder, Module, Value
from tilewright.graph.passes import quantized_products


def activated(activation: Callable[[Builder, Value], Value], out: str = "uint8") -> Module:
    """A convolution of bytes, an activation, and what it becomes."""
    b = Builder("main")
    x = b.input("x", "uint8", (1, 16, 9, 7))
    real = b.dequantize(x, np.float32(0.02), np.uint8(114))
    weights = b.dequantize(stored("int8", 24, 16, 1, 1), np.float32(0.003))
    y = activation(b, b.conv(real, weights))
    b.output(b.quantize(y, np.float32(0.07), np.array(9, out)))
    return b.build()


def silu(b: Builder, x: Value) -> Value:
    return b.mul(x, b.sigmoid(x))


@pytest.mark.parametrize("out", ["uint8", "int8"])
def test_sigmoids_that_become_bytes_are_coarse(out: str) -> None:
    module = activated(silu, out)
    rewritten = operators(quantized_products(VNNI)(module))
    assert "coarse_sigmoid" in rewritten and "sigmoid" not in rewritten
    check(module, stored("uint8", 1, 16, 9, 7))


def test_those_that_are_added_to_stay() -> None:
    """What is left of a difference may be as small as the error."""

    def centred(b: Builder, x: Value) -> Value:
        return b.mul(b.sub(b.sigmoid(x), np.float32(0.5)), np.float32(1000))

    assert "coarse_sigmoid" not in operators(quantized_products(VNNI)(activated(centred)))


def test_those_that_become_words_stay() -> None:
    assert "coarse_sigmoid" not in operators(quantized_products(VNNI)(activated(silu, "uint16")))


def test_those_that_others_read_stay() -> None:
    b = Builder("main")
    x = b.input("x", "float32", (4, 5))
    y = b.sigmoid(x)
    b.output(b.quantize(y, np.float32(0.004), np.uint8(0)), y)
    assert "coarse_sigmoid" not in operators(quantized_products(VNNI)(b.build()))


def test_bytes_times_gates_are_not_divided() -> None:
    """As in squeeze-and-excitation: the gates come from sums, one for each channel."""
    b = Builder("main")
    x = b.input("x", "uint8", (1, 16, 9, 7))
    real = b.dequantize(x, np.float32(0.02), np.uint8(114))
    weights = b.dequantize(stored("int8", 16, 16, 1, 1), np.float32(0.003))
    squeezed = b.dequantize(b.input("s", "uint8", (1, 16, 1, 1)), np.float32(0.02), np.uint8(114))
    gates = b.sigmoid(b.conv(squeezed, weights))
    b.output(b.quantize(b.mul(real, gates), np.float32(0.013), np.uint8(7)))
    module = b.build()
    scale = calls(quantized_products(VNNI)(module))[-1].args[1]
    assert scale is not None and scale.constant == 1
    check(module, stored("uint8", 1, 16, 9, 7), stored("uint8", 1, 16, 1, 1))


def test_noise_in_bytes_is_that_of_exact_sigmoids() -> None:
    """Signal over noise of SiLU in bytes is that of exact sigmoids."""
    values = rng().normal(0, 3, (1, 4096)).astype(np.float32)
    exact = values / (1 + np.exp(-values.astype(np.float64)))
    scale = np.float32((exact.max() - exact.min()) / 255)
    zero = np.uint8(round(-exact.min() / scale))

    b = Builder("main")
    x = b.input("x", "float32", values.shape)
    b.output(b.quantize(silu(b, x), scale, zero))
    (got,) = tw.compile(b.build(), threads=1).run([values])
    ideal = np.clip(np.rint(exact / scale) + zero, 0, 255)
    noise, least = (((s - zero) * float(scale) - exact).std() for s in (got.astype(float), ideal))
    assert noise <= 1.01 * least
