"""The four networks of MLPerf Tiny as quantized TFLite models with random weights.

Layers and shapes are those of the benchmark's reference models; scales are chosen so that values
spread over the bytes, as calibrated ones do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from tests.frontends.tflite.writer import Writer

_RELU: Final = 1
_SAME, _VALID = 0, 1
_SCALE: Final = 0.05


class Network:
    """A model in the making: each layer takes the tensor that the one before it gave."""

    def __init__(self, shape: Sequence[int], seed: int = 0) -> None:
        self.w = Writer()
        self.rng = np.random.default_rng(seed)
        self.shape = list(shape)
        self.at = self.w.input("int8", self.shape, scale=_SCALE, zero=-3)
        self.macs = 0

    def conv(self, channels: int, kernel: Sequence[int], stride: int = 1, relu: bool = True) -> int:
        _, h, w, c = self.shape
        shape = [channels, *kernel, c]
        out = [1, -(-h // stride), -(-w // stride), channels]
        self.macs += int(np.prod(out) * np.prod(shape[1:]))
        options = {"stride_w": stride, "stride_h": stride, "padding": _SAME}
        return self._product("CONV_2D", shape, 0, out, relu, int(np.prod(shape[1:])), options)

    def depthwise(self, stride: int = 1, kernel: Sequence[int] = (3, 3)) -> int:
        _, h, w, c = self.shape
        out = [1, -(-h // stride), -(-w // stride), c]
        self.macs += int(np.prod(out) * np.prod(kernel))
        options = {"stride_w": stride, "stride_h": stride, "padding": _SAME, "multiplier": 1}
        many = int(np.prod(kernel))
        return self._product("DEPTHWISE_CONV_2D", [1, *kernel, c], 3, out, True, many, options)

    def dense(self, units: int, relu: bool = False) -> int:
        taken = self.shape[-1]
        self.macs += units * taken
        return self._product("FULLY_CONNECTED", [units, taken], 0, [1, units], relu, taken, {})

    def _product(
        self,
        name: str,
        shape: list[int],
        axis: int,
        out: list[int],
        relu: bool,
        terms: int,
        options: dict[str, int],
    ) -> int:
        weights = self.rng.integers(-127, 128, shape).astype(np.int8)
        many = name != "FULLY_CONNECTED"
        # Sums of random products grow with the root of their number.
        scale = np.float32(0.9 / (70 * np.sqrt(terms)))
        scales = self.rng.uniform(0.8, 1.2, shape[axis] if many else 1).astype(np.float32) * scale
        bias = self.rng.integers(-2000, 2000, shape[axis]).astype(np.int32)
        operands = [
            self.at,
            self.w.constant(weights, scale=scales, axis=axis),
            self.w.constant(bias, scale=self.w.tensors[self.at][4][2] * scales),
        ]
        made = self.w.tensor("int8", out, scale=_SCALE, zero=-128 if relu else 0)
        self.shape = out
        extra: dict[str, Any] = {**options, "activation": _RELU} if relu else dict(options)
        self.at = self.w.op(name, operands, made, version=3, **extra)
        return self.at

    def add(self, other: int) -> int:
        made = self.w.tensor("int8", self.shape, scale=2 * _SCALE, zero=-128)
        self.at = self.w.op("ADD", [self.at, other], made, version=2, activation=_RELU)
        return self.at

    def pool(self) -> int:
        """The mean of each channel, as average pooling over the whole image."""
        _, h, w, c = self.shape
        fields = self.w.tensors[self.at][4]
        made = self.w.tensor("int8", [1, 1, 1, c], scale=fields[2], zero=fields[3])
        options: dict[str, Any] = {"stride_w": w, "stride_h": h, "filter_w": w, "filter_h": h}
        options["padding"] = _VALID
        self.at = self.w.op("AVERAGE_POOL_2D", [self.at], made, version=2, **options)
        return self.reshape([1, c])

    def reshape(self, shape: list[int]) -> int:
        fields = self.w.tensors[self.at][4]
        made = self.w.tensor("int8", shape, scale=fields[2], zero=fields[3])
        wanted = self.w.constant(np.array(shape, np.int32))
        self.at, self.shape = self.w.op("RESHAPE", [self.at, wanted], made), shape
        return self.at

    def softmax(self) -> int:
        made = self.w.tensor("int8", self.shape, scale=1 / 256, zero=-128)
        self.at = self.w.op("SOFTMAX", [self.at], made, version=2, beta=1.0)
        return self.at

    def model(self) -> bytes:
        return self.w.model([self.at])


def keyword_spotting() -> Network:
    """DS-CNN on 49×10 cepstra, 12 words."""
    n = Network([1, 49, 10, 1])
    n.conv(64, (10, 4), 2)
    for _ in range(4):
        n.depthwise()
        n.conv(64, (1, 1))
    n.pool()
    n.dense(12)
    n.softmax()
    return n


def wake_words() -> Network:
    """MobileNet-V1 with a quarter of the channels on 96×96 pixels, 2 classes."""
    n = Network([1, 96, 96, 3])
    n.conv(8, (3, 3), 2)
    layers = [(16, 1), (32, 2), (32, 1), (64, 2), (64, 1), (128, 2), *[(128, 1)] * 5]
    for channels, stride in [*layers, (256, 2), (256, 1)]:
        n.depthwise(stride)
        n.conv(channels, (1, 1))
    n.pool()
    n.dense(2)
    n.softmax()
    return n


def image_classification() -> Network:
    """ResNet-8 on 32×32 pixels, 10 classes."""
    n = Network([1, 32, 32, 3])
    n.conv(16, (3, 3))
    for channels, stride in ((16, 1), (32, 2), (64, 2)):
        start, shape = n.at, n.shape
        n.conv(channels, (3, 3), stride)
        n.conv(channels, (3, 3), relu=False)
        if stride > 1:
            end, after = n.at, n.shape
            n.at, n.shape = start, shape
            start = n.conv(channels, (1, 1), stride, relu=False)
            n.at, n.shape = end, after
        n.add(start)
    n.pool()
    n.dense(10)
    n.softmax()
    return n


def anomaly_detection() -> Network:
    """A fully connected autoencoder of 640 numbers."""
    n = Network([1, 640])
    for units in (*[128] * 4, 8, *[128] * 4):
        n.dense(units, relu=True)
    n.dense(640)
    return n


NETWORKS: Final[dict[str, Callable[[], Network]]] = {
    "keyword spotting (DS-CNN)": keyword_spotting,
    "wake words (MobileNet-V1 0.25)": wake_words,
    "image classification (ResNet-8)": image_classification,
    "anomaly detection (autoencoder)": anomaly_detection,
}
