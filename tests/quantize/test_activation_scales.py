"""Weights scaled by what they are multiplied by: the same function, and less error once rounded."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.quantize.networks import normal, operators, perceptron, rng
from tilewright.graph import Builder, Module, evaluate, verify
from tilewright.quantize.activation_scales import scaled_by_activations
from tilewright.quantize.blocks import block_layers
from tilewright.quantize.equalize import rescaled
from tilewright.quantize.second_order import second_moments


def gated(depth: int = 64, spread: float = 3.0) -> Module:
    """What language models have between attentions: norm, two products, a gate, a product."""
    b = Builder()
    x = b.input("x", "f32", ("n", 3, depth))
    y = b.rms_norm(x, (spread ** rng(1).standard_normal(depth)).astype(np.float32))
    gate = b.matmul(y, normal(depth, 96, seed=2, scale=0.1))
    up = b.matmul(y, normal(depth, 96, seed=3, scale=0.1))
    hidden = b.mul(b.mul(gate, b.sigmoid(gate)), up)
    b.output(b.add(x, b.matmul(hidden, normal(96, depth, seed=4, scale=0.1))), names=["y"])
    return b.build()


def images(channels: int, width: int) -> Module:
    """Channels of a convolution lie along another axis than those of the product behind it."""
    b = Builder()
    x = b.input("x", "f32", ("n", 8, 5, width))
    y = b.relu(b.conv(x, normal(channels, 8, 1, 1, seed=1)))
    b.output(b.matmul(y, normal(width, 9, seed=2)), names=["y"])
    return b.build()


def samples(count: int, *shape: int, seed: int = 0) -> Any:
    return rng(seed).standard_normal((count, *shape)).astype(np.float32)


#: Networks, the shape of a sample, and how many of their layers can be scaled.
NETWORKS = {
    "perceptron": (perceptron(64, spread=3.0), (64,), 2),
    "gated": (gated(), (3, 64), 3),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_the_function_stays_the_same(name: str) -> None:
    module, shape, count = NETWORKS[name]
    data = samples(40, *shape)
    layers = block_layers(module)
    moments = second_moments(module, layers, lambda: [{"x": data}], lambda: None)
    scaled = scaled_by_activations(module, layers, moments, "int4", 32)
    verify(scaled)
    changed = [a.array is not b.array for a, b in zip(layers, block_layers(scaled), strict=True)]
    assert sum(changed) == count
    for found, wanted in zip(evaluate(scaled, [data]), evaluate(module, [data]), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("bits", ["int4", "int8"])
def test_the_error_is_less(bits: str) -> None:
    data, others = samples(100, 3, 64), samples(50, 3, 64, seed=9)
    plain, scaled = (
        tw.quantize(gated(spread=10.0), data, weights=bits, method=method, validation=others)
        for method in ("mse", "awq")
    )
    assert operators(scaled) == operators(plain)
    assert plain.report.error is not None and scaled.report.error is not None
    assert scaled.report.error.sqnr > plain.report.error.sqnr + 2
    assert scaled.report.method == "awq, blocks of 32" and scaled.report.held_out


def test_inputs_that_are_never_seen_or_enormous() -> None:
    data = samples(64, 3, 64)
    data[..., 5:9] = 0
    data[..., 20] *= 1e6
    for seen in (data, np.zeros_like(data)):
        q = tw.quantize(gated(), seen, weights="int4", method="awq")
        assert np.isfinite(tw.compile(q)(data)).all()


@pytest.mark.parametrize(("channels", "width"), [(16, 12), (12, 12)])
def test_channels_along_another_axis_are_not_those_of_the_layer(channels: int, width: int) -> None:
    module = images(channels, width)
    layers = block_layers(module)
    assert len(layers) == 1 and rescaled(module, layers, lambda _: np.full(width, 2.0)) is module
    error = tw.quantize(module, samples(60, 8, 5, width)).report.error
    assert error is not None and error.sqnr > 20


def test_what_is_broadcast_along_channels_takes_no_factors() -> None:
    b = Builder()
    x = b.input("x", "f32", ("n", 48))
    column = b.gemm(x, normal(48, 1, seed=1))
    b.output(b.matmul(b.mul(column, b.sigmoid(x)), normal(48, 24, seed=2)), names=["y"])
    module = b.build()
    layers = block_layers(module)
    assert len(layers) == 1 and rescaled(module, layers, lambda _: np.full(48, 2.0)) is module


def test_what_is_refused() -> None:
    with pytest.raises(tw.UserError, match="awq without calibration data"):
        tw.quantize(perceptron(), weights="int4", method="awq")
    with pytest.raises(tw.UserError, match="awq rounds weights alone"):
        tw.quantize(perceptron(), normal(16, 64), method="awq")
