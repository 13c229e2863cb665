"""Random graphs over images for property tests: convolutions and what goes with them."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.graph import Builder, Module, Value

MAPS = ["relu", "sigmoid", "hard_swish", "tanh", "exp", "neg"]
CHANNELS = [3, 4, 6, 8, 16, 20, 24, 32]


class RandomImages:
    """Emits random operators on images; all sizes but the channels may be `symbolic`."""

    def __init__(self, seed: int, spatial: int = 2, symbolic: bool = False) -> None:
        self.rng = np.random.default_rng(seed)
        self.b = Builder("main")
        self.spatial = spatial
        sizes: list[Any] = ["n", *("hwd"[:spatial])] if symbolic else [2, *[7] * spatial]
        self.inputs = [self.b.input("x", "f32", (sizes[0], self.one(CHANNELS), *sizes[1:]))]
        self.scope: list[Value] = list(self.inputs)

    def one(self, choices: Any) -> Any:
        return choices[int(self.rng.integers(len(choices)))]

    def array(self, *shape: int) -> Any:
        return self.rng.standard_normal(shape).astype("f4") / 4

    def module(self, steps: int) -> Module:
        for _ in range(steps):
            made = getattr(self, self.one(KINDS))(self.one(self.scope[-4:]))
            if made is not None:
                self.scope.append(made)
        self.b.output(self.scope[-1], *(self.one(self.scope) for _ in range(2)))
        return self.b.build()

    def channels(self, x: Value) -> int:
        return x.tensor.with_shape([x.shape[1]]).static_shape[0]

    def conv(self, x: Value) -> Any:
        count, outputs, size = self.channels(x), self.one(CHANNELS), self.one([1, 3])
        weight = self.array(outputs, count, *[size] * self.spatial) / count
        bias = self.one([None, self.array(outputs)])
        return self.b.conv(x, weight, bias, pads=[size // 2] * (2 * self.spatial))

    def depthwise(self, x: Value) -> Any:
        count = self.channels(x)
        weight = self.array(count, 1, *[3] * self.spatial)
        return self.b.conv(x, weight, pads=[1] * (2 * self.spatial), groups=count)

    def grouped(self, x: Value) -> Any:
        count = self.channels(x)
        groups = self.one([g for g in (1, 2, 4) if count % g == 0])
        weight = self.array(16 * groups, count // groups, *[1] * self.spatial)
        return self.b.conv(x, weight, groups=groups)

    def map(self, x: Value) -> Any:
        return self.b.emit(self.one(MAPS), x)

    def clip(self, x: Value) -> Any:
        return self.b.clip(x, self.one([0.0, -1.0, 0.5]), 6.0)

    def by_channel(self, x: Value) -> Any:
        shape = (self.channels(x), *[1] * self.spatial)
        return self.b.emit(self.one(["mul", "add", "div"]), x, self.array(*shape) + 2)

    def scalar(self, x: Value) -> Any:
        return self.b.emit(self.one(["mul", "add"]), x, self.b.constant(np.float32(1.5)))

    def spread(self, x: Value) -> Any:
        return self.b.mul(x, self.b.mean(x, axes=[1], keepdims=True))

    def gate(self, x: Value) -> Any:
        mean = self.b.mean(x, axes=list(range(2, 2 + self.spatial)), keepdims=True)
        count = self.channels(x)
        weight = self.array(count, count, *[1] * self.spatial)
        return self.b.mul(x, self.b.sigmoid(self.b.conv(mean, weight)))

    def same(self, x: Value) -> Any:
        others = [v for v in self.scope if v.type == x.type]
        return self.b.emit(self.one(["add", "mul", "maximum"]), x, self.one(others))

    def concat(self, x: Value) -> Any:
        others = [v for v in self.scope if v.shape[0] is x.shape[0] and v.shape[2:] == x.shape[2:]]
        return self.b.concat(x, self.one(others), axis=1)

    def pool(self, x: Value) -> Any:
        kind, rank = self.one(["max_pool", "avg_pool"]), self.spatial
        return self.b.emit(kind, x, kernel=[3] * rank, pads=[1] * (2 * rank))

    def pad(self, x: Value) -> Any:
        """Around the image, and off again."""
        sides = [0, 0, *[1] * self.spatial]
        wide = self.b.pad(x, self.one([None, np.float32(2)]), before=sides, after=sides)
        axes = range(2, 2 + self.spatial)
        return self.b.slice(wide, starts=[1] * self.spatial, ends=[-1] * self.spatial, axes=axes)

    def part(self, x: Value) -> Any:
        """Some of the channels."""
        count = self.channels(x)
        start = count // 2 if count % 2 == 0 else 0
        return self.b.slice(x, starts=[start], ends=[count], axes=[1])

    def twice(self, x: Value) -> Any:
        """Every pixel twice along an axis, and every other one of those."""
        more = self.b.repeat_elements(x, repeats=2, axis=-1)
        return self.b.slice(more, starts=[0], ends=[2**31], axes=[-1], steps=[2])

    def other(self, x: Value) -> Any:
        """Something that takes plain images alone."""
        return self.b.softmax(x, axis=1)


KINDS = [
    *["conv"] * 4,
    *["depthwise", "grouped", "map", "clip", "by_channel", "scalar", "spread", "gate", "same"],
    *["concat", "pool", "pad", "part", "twice", "other"],
]
