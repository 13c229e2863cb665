"""Small models to save and load."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.graph import Builder, Module

Array = np.ndarray[Any, Any]


def random(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def mlp(batch: Any = "n") -> Module:
    """Two outputs, a symbolic batch, constants that kernels pack."""
    b = Builder()
    x = b.input("x", "f32", (batch, 24))
    hidden = b.relu(b.matmul(x, random(24, 40)) + random(40))
    b.output(b.softmax(b.matmul(hidden, random(40, 10))))
    b.output(hidden)
    return b.build()


def positive() -> Module:
    """A model whose output has as many elements as the data say."""
    b = Builder()
    x = b.input("x", "f32", ("n",))
    b.output(b.compress(x, x > 0.0, axis=0))
    return b.build()
