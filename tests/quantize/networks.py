"""Small networks with random weights, and what their layers are computed in."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.graph import Builder, Call, Module


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def normal(*shape: int, seed: int = 0, scale: float = 1.0) -> Any:
    return (scale * rng(seed).standard_normal(shape)).astype(np.float32)


def convolutional(outputs: int = 10) -> Module:
    """Two convolutions with batch normalisation, a residual sum, and a classifier."""
    b = Builder()
    x = b.input("x", "f32", ("n", 8, 9, 9))
    moments = [normal(16, seed=1) ** 2 + 0.5, normal(16, seed=2), normal(16, seed=3)]
    y = b.conv(x, normal(16, 8, 3, 3, seed=4, scale=0.1), pads=[1] * 4)
    y = b.relu(b.batch_norm(y, *moments, normal(16, seed=5) ** 2 + 0.5))
    z = b.conv(y, normal(16, 16, 3, 3, seed=6, scale=0.1), normal(16, seed=7), pads=[1] * 4)
    pooled = b.reshape(b.global_avg_pool(b.relu(b.add(z, y))), shape=(-1, 16))
    b.output(b.gemm(pooled, normal(16, outputs, seed=8), normal(outputs, seed=9)), names=["y"])
    return b.build()


def upsampling() -> Module:
    """A convolution in groups of channels, and a transposed one."""
    b = Builder()
    x = b.input("x", "f32", ("n", 32, 8, 8))
    y = b.relu(b.conv(x, normal(32, 16, 3, 3, seed=1, scale=0.1), pads=[1] * 4, groups=2))
    weight = normal(32, 16, 4, 4, seed=2, scale=0.1)
    y = b.conv_transpose(y, weight, normal(16, seed=3), strides=[2, 2], pads=[1] * 4)
    b.output(b.conv(b.relu(y), normal(8, 16, 1, 1, seed=4)), names=["y"])
    return b.build()


def perceptron(depth: int = 64, spread: float = 1.0) -> Module:
    """Normalisation, two products, and a softmax; channels differ in size by `spread`."""
    b = Builder()
    x = b.input("x", "f32", ("n", depth))
    scale = (spread ** rng(1).standard_normal(depth)).astype(np.float32)
    y = b.layer_norm(x, scale, normal(depth, seed=2))
    y = b.relu(b.matmul(y, normal(depth, 48, seed=3, scale=0.2)))
    y = b.add(b.matmul(y, normal(48, 24, seed=4, scale=0.2)), normal(24, seed=5))
    b.output(b.softmax(y), names=["y"])
    return b.build()


def operators(module: Module) -> list[str]:
    return [b.expr.op.name for b in module.main.body if isinstance(b.expr, Call)]
