"""Small networks of the kinds that people run: a few layers each, so that they compile in seconds.

They have the shapes of ResNet, MobileNet, BERT and an LSTM, not their depth: most of the kernels of
the large ones occur in them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.graph import Builder, Module


def weights(*shape: int) -> Any:
    values = np.random.default_rng(sum(shape)).standard_normal(shape) / np.sqrt(shape[-1])
    return values.astype(np.float32)


def resnet(batch: Any = 1) -> Module:
    """The stem, one bottleneck that keeps its size and one that halves it, the classifier."""
    b = Builder()
    x = b.input("x", "f32", (batch, 3, 112, 112))

    def conv(v: Any, inputs: int, outputs: int, size: int, stride: int = 1) -> Any:
        kernel = weights(outputs, inputs, size, size)
        y = b.conv(v, kernel, strides=[stride] * 2, pads=[size // 2] * 4)
        return y + weights(outputs, 1, 1)

    def bottleneck(v: Any, inputs: int, width: int, stride: int) -> Any:
        y = b.relu(conv(v, inputs, width, 1))
        y = b.relu(conv(y, width, width, 3, stride))
        shortcut = conv(v, inputs, 4 * width, 1, stride)
        return b.relu(conv(y, width, 4 * width, 1) + shortcut)

    y = b.relu(conv(x, 3, 64, 7, 2))
    y = b.max_pool(y, kernel=[3, 3], strides=[2, 2], pads=[1] * 4)
    y = bottleneck(y, 64, 64, 1)
    y = bottleneck(y, 256, 128, 2)
    b.output(b.softmax(b.matmul(b.mean(y, axes=[2, 3]), weights(512, 100)) + weights(100)))
    return b.build()


def mobilenet() -> Module:
    """Depthwise convolutions between pointwise ones, with gates."""
    b = Builder()
    x = b.input("x", "f32", (1, 3, 96, 96))
    y = b.conv(x, weights(16, 3, 3, 3), strides=[2, 2], pads=[1] * 4)
    for inputs, wide, outputs, stride in ((16, 96, 24, 2), (24, 144, 24, 1)):
        z = b.relu(b.conv(y, weights(wide, inputs, 1, 1)) + weights(wide, 1, 1))
        z = b.conv(z, weights(wide, 1, 3, 3), strides=[stride] * 2, pads=[1] * 4, groups=wide)
        gate = b.sigmoid(b.conv(b.mean(z, axes=[2, 3], keepdims=True), weights(wide, wide, 1, 1)))
        z = b.conv(b.relu(z) * gate, weights(outputs, wide, 1, 1))
        y = z + y if inputs == outputs else z
    b.output(b.matmul(b.mean(y, axes=[2, 3]), weights(24, 10)))
    return b.build()


def bert(length: Any = 64, width: int = 128, heads: int = 2) -> Module:
    """An encoder's layer after its embedding."""
    b = Builder()
    tokens = b.input("tokens", "i64", (1, length))
    x = b.gather(weights(500, width), tokens, axis=0)

    def split(v: Any) -> Any:
        parts = b.reshape(v, shape=[1, -1, heads, width // heads])
        return b.transpose(parts, axes=[0, 2, 1, 3])

    def norm(v: Any) -> Any:
        centred = v - b.mean(v, axes=[-1], keepdims=True)
        variance = b.mean(centred * centred, axes=[-1], keepdims=True)
        return centred / b.sqrt(variance + 1e-5) * weights(width) + weights(width)

    q, k, v = (split(b.matmul(x, weights(width, width)) + weights(width)) for _ in range(3))
    scores = b.matmul(q, b.transpose(k, axes=[0, 1, 3, 2])) * float(np.sqrt(heads / width))
    mixed = b.transpose(b.matmul(b.softmax(scores), v), axes=[0, 2, 1, 3])
    y = norm(x + b.matmul(b.reshape(mixed, shape=[1, -1, width]), weights(width, width)))
    wide = b.gelu(b.matmul(y, weights(width, 4 * width)) + weights(4 * width))
    b.output(norm(y + b.matmul(wide, weights(4 * width, width))))
    return b.build()


def lstm() -> Module:
    b = Builder()
    x = b.input("x", "f32", ("t", 1, 40))
    b.output(*b.emit("lstm", x, weights(1, 4 * 64, 40), weights(1, 4 * 64, 64)))
    return b.build()


NETWORKS: dict[str, Callable[[], Module]] = {
    "resnet": resnet,
    "resnet, free batch": lambda: resnet("n"),
    "mobilenet": mobilenet,
    "bert": bert,
    "bert, free length": lambda: bert("s"),
    "lstm": lstm,
}
