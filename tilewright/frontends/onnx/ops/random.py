"""Random numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.frontends.onnx.node import Node
from tilewright.frontends.onnx.table import converts
from tilewright.graph import Dim, Value
from tilewright.ir import DType


def random_key(n: Node) -> Value:
    """Where the numbers come from: the same at every run if the model has a seed."""
    if not n.has("seed"):
        return n.builder.random_key()
    # Most operators have a float as their seed, dropout a whole number.
    seed = n.integer("seed") if n.op == "Dropout" else n.real("seed")
    return n.constant(np.array([seed], np.float64).view(np.uint32), "uint32")


@converts("RandomUniform")
def random_uniform(n: Node) -> Value:
    return _uniform(n, n.integers("shape"), n.dtype("dtype", 1))


@converts("RandomUniformLike")
def random_uniform_like(n: Node) -> Value:
    return _uniform(n, n[0].shape, n.dtype("dtype", n[0].dtype))


def _uniform(n: Node, shape: Sequence[Dim], dtype: DType) -> Value:
    low, high = n.real("low", 0.0), n.real("high", 1.0)
    return n.builder.random_uniform(random_key(n), shape=shape, low=low, high=high, dtype=dtype)


@converts("RandomNormal")
def random_normal(n: Node) -> Value:
    return _normal(n, n.integers("shape"), n.dtype("dtype", 1))


@converts("RandomNormalLike")
def random_normal_like(n: Node) -> Value:
    return _normal(n, n[0].shape, n.dtype("dtype", n[0].dtype))


def _normal(n: Node, shape: Sequence[Dim], dtype: DType) -> Value:
    mean, scale = n.real("mean", 0.0), n.real("scale", 1.0)
    return n.builder.random_normal(random_key(n), shape=shape, mean=mean, scale=scale, dtype=dtype)


@converts("Bernoulli")
def bernoulli(n: Node) -> Value:
    b, chance = n.builder, n[0]
    numbers = b.random_uniform(random_key(n), shape=chance.shape, dtype=chance.dtype)
    return b.cast(b.less(numbers, chance), dtype=n.dtype("dtype", chance.dtype))


@converts("Multinomial")
def multinomial(n: Node) -> Value:
    """The greatest of scores plus Gumbel noise is distributed as the scores say."""
    b, scores = n.builder, n[0]
    rows, classes = scores.shape
    shape: list[Any] = [rows, n.integer("sample_size", 1), classes]
    least = float(np.finfo(np.float32).tiny)
    uniform = b.random_uniform(random_key(n), shape=shape, low=least, high=1.0, dtype="float32")
    noise = b.neg(b.log(b.neg(b.log(uniform))))
    wide = b.unsqueeze(b.cast(scores, dtype="float32"), axes=[1])
    return b.cast(b.argmax(b.add(wide, noise), axis=2), dtype=n.dtype("dtype", 6))
