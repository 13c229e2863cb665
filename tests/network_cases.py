"""Small networks of every kind, with free sizes: what tests run on several machines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from tests.test_compile import convnet, mlp, random, transformer, weights
from tilewright.graph import Builder, Module


class Case(NamedTuple):
    name: str
    graph: Callable[[], Module]
    inputs: Sequence[Any]

    def __str__(self) -> str:
        return self.name


def recurrent(op: str) -> Module:
    gates = {"lstm": 4, "gru": 3}[op]
    b = Builder()
    x = b.input("x", "f32", ("t", "n", 12))
    w, r = weights(1, gates * 20, 12), weights(1, gates * 20, 20)
    b.output(*b.emit(op, x, w, r)[:1])
    return b.build()


def reductions() -> Module:
    b = Builder()
    x = b.input("x", "f32", ("n", "c", "h"))
    centred = x - b.mean(x, axes=[1, 2], keepdims=True)
    b.output(b.softmax(centred, axis=1), b.max(b.exp(centred), axes=[2]), b.sum(x, axes=[0]))
    return b.build()


def movement() -> Module:
    b = Builder()
    x = b.input("x", "f32", ("a", "b", 6))
    y = b.transpose(b.concat(x, b.tanh(x), axis=2), axes=[2, 0, 1])
    b.output(b.pad(y, before=[0, 1, 2], after=[1, 0, 3]), b.transpose(y, axes=[1, 2, 0]))
    return b.build()


def images() -> Module:
    """Depthwise, grouped, dilated and transposed convolutions, pooling."""
    b = Builder()
    x = b.input("x", "f32", ("n", 8, "h", "w"))
    y = b.relu(b.conv(x, weights(8, 1, 3, 3), pads=[1] * 4, groups=8))
    y = b.sigmoid(b.conv(y, weights(16, 4, 3, 3), pads=[2] * 4, dilations=[2, 2], groups=2))
    y = b.max_pool(y, kernel=[3, 3], strides=[2, 2], pads=[1] * 4)
    b.output(b.conv_transpose(y, weights(16, 6, 2, 2), strides=[2, 2]))
    return b.build()


def functions() -> Module:
    """Every function whose code is ours: exponentials, logarithms, angles."""
    b = Builder()
    x = b.input("x", "f32", ("n",))
    for name in ("exp", "tanh", "sigmoid", "erf", "sin", "cos", "atan", "log1p", "sqrt", "floor"):
        b.output(b.emit(name, b.abs(x) if name in ("log1p", "sqrt") else x))
    return b.build()


CASES = [
    Case("mlp", lambda: mlp("n"), [random(5, 24)]),
    Case("convnet", lambda: convnet("n"), [random(2, 3, 12, 12)]),
    Case("transformer", lambda: transformer("s"), [random(2, 9, 16)]),
    Case("lstm", lambda: recurrent("lstm"), [random(7, 3, 12)]),
    Case("gru", lambda: recurrent("gru"), [random(7, 1, 12)]),
    Case("reductions", reductions, [random(3, 17, 33)]),
    Case("movement", movement, [random(5, 19, 6)]),
    Case("images", images, [random(2, 8, 13, 18)]),
    Case("functions", functions, [random(1003) * np.float32(5)]),
]
