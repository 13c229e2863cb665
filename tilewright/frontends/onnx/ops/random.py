"""Random numbers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tilewright.frontends.onnx.node import Node
from tilewright.frontends.onnx.table import converts
from tilewright.graph import Dim, Value
from tilewright.ir import DType


def random_key(n: Node) -> Value:
    """The key of the random numbers: the same in every run if the model has a seed."""
    if not n.has("seed"):
        return n.builder.random_key()
    # The seed is a float in most operators, an integer in dropout.
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
    return n.builder.bernoulli(random_key(n), n[0], dtype=n.dtype("dtype", n[0].dtype))


@converts("Multinomial")
def multinomial(n: Node) -> Value:
    samples, dtype = n.integer("sample_size", 1), n.dtype("dtype", 6)
    return n.builder.multinomial(random_key(n), n[0], samples=samples, dtype=dtype)
