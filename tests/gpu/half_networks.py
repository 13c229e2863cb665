"""Small networks of each kind, for GPUs in several precisions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.graph import Builder, Value
from tilewright.graph import Module as Graph

Array = np.ndarray[Any, Any]
Inputs = list[Array]


class Weights:
    """Random weights of one network."""

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)

    def __call__(self, *shape: int) -> Array:
        scale = float(np.prod(shape[1:])) ** -0.5 if len(shape) > 1 else 0.1
        return (self._random.standard_normal(shape) * scale).astype(np.float32)

    def image(self, *shape: int) -> Array:
        return self._random.standard_normal(shape).astype(np.float32)


def convolutional() -> tuple[Graph, Inputs]:
    """Residuals, every channel by itself, groups, pools, concats, resized images."""
    w, b = Weights(0), Builder()
    x = b.input("x", "f32", ("n", 3, 18, 18))
    y = b.relu(b.conv(x, w(16, 3, 3, 3), w(16), strides=(2, 2), pads=(1, 1, 1, 1)))
    z = b.conv(y, w(16, 16, 3, 3), w(16), pads=(1, 1, 1, 1))
    y = b.relu(b.add(y, z))
    z = b.hard_swish(b.conv(y, w(16, 1, 3, 3), w(16), pads=(1, 1, 1, 1), groups=16))
    z = b.conv(z, w(24, 16, 1, 1), w(24))
    g = b.conv(y, w(24, 4, 3, 3), pads=(1, 1, 1, 1), groups=4)
    both = b.concat(z, g, axis=1)
    small = b.max_pool(both, kernel=(3, 3), strides=(2, 2), pads=(1, 1, 1, 1))
    large = b.resize(small, sizes=(9, 9), axes=(2, 3), mode="nearest")
    mixed = b.avg_pool(b.add(large, both), kernel=(2, 2), strides=(1, 1))
    mixed = b.sigmoid(b.conv(mixed, w(10, 48, 1, 1), w(10)))
    b.output(b.dense(b.mean(mixed, axes=(2, 3)), w(7, 10), w(7)), mixed)
    return b.build(), [w.image(2, 3, 18, 18)]


def normalized(b: Builder, x: Value, w: Weights, size: int) -> Value:
    """Layer normalization, as exporters write it down."""
    centred = b.sub(x, b.mean(x, axes=(-1,), keepdims=True))
    square = b.mul(centred, centred)
    deviation = b.sqrt(b.add(b.mean(square, axes=(-1,), keepdims=True), np.float32(1e-12)))
    return b.add(b.mul(b.div(centred, deviation), w(size) + 1), w(size))


def transformer(hidden: int = 32, heads: int = 4) -> tuple[Graph, Inputs]:
    """Embeddings, a mask of the least float32, attention, GELU."""
    w, b = Weights(1), Builder()
    ids, mask = b.input("ids", "i64", (2, 12)), b.input("mask", "f32", (2, 12))
    x = b.take(b.constant(w(50, hidden)), ids, axis=0)
    far = b.mul(b.sub(np.float32(1), mask), np.float32(-3.4028235e38))
    far = b.reshape(far, shape=(2, 1, 1, 12))
    for _ in range(2):
        x = normalized(b, x, w, hidden)
        q, k, v = (
            b.transpose(
                b.reshape(
                    b.dense(x, w(hidden, hidden), w(hidden)), shape=(2, 12, heads, hidden // heads)
                ),
                axes=(0, 2, 1, 3),
            )
            for _ in range(3)
        )
        scores = b.matmul(q, b.transpose(k, axes=(0, 1, 3, 2)))
        scores = b.softmax(b.add(b.mul(scores, np.float32(0.35)), far))
        seen = b.reshape(b.transpose(b.matmul(scores, v), axes=(0, 2, 1, 3)), shape=(2, 12, hidden))
        x = b.add(x, b.dense(seen, w(hidden, hidden), w(hidden)))
        wide = b.gelu(b.dense(normalized(b, x, w, hidden), w(64, hidden), w(64)))
        x = b.add(x, b.dense(wide, w(hidden, 64), w(hidden)))
    b.output(normalized(b, x, w, hidden))
    ids_array = np.random.default_rng(2).integers(0, 50, (2, 12))
    seen_array = np.ones((2, 12), np.float32)
    seen_array[0, 7:] = 0
    # Of the second text nothing is to be seen.
    seen_array[1] = 0
    return b.build(), [ids_array, seen_array]


def recurrent() -> tuple[Graph, Inputs]:
    """Two directions, then a product of what they give."""
    w, b = Weights(3), Builder()
    x = b.input("x", "f32", (5, 2, 16))
    weights = w(2, 4 * 24, 16), w(2, 4 * 24, 24), w(2, 8 * 24)
    y, h, _ = b.lstm(x, *weights, direction="bidirectional")
    rows = b.reshape(b.transpose(y, axes=(0, 2, 1, 3)), shape=(5, 2, 48))
    b.output(b.dense(rows, w(9, 48), w(9)), h)
    return b.build(), [w.image(5, 2, 16)]


NETWORKS: dict[str, Callable[[], tuple[Graph, Inputs]]] = {
    "convolutional": convolutional,
    "transformer": transformer,
    "recurrent": recurrent,
}
