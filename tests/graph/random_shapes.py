"""Random modules that move elements about: transposes, reshapes, slices, concats, maps between."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from tilewright.graph import Builder, Module, Value

KINDS = [
    "transpose",
    "reshape",
    "slice",
    "concat",
    "pad",
    "cast",
    "unary",
    "binary",
    "constant",
    "expand",
    "reduce",
    "product",
]


class _Maker:
    def __init__(self, draw: Any) -> None:
        self.draw = draw
        self.b = Builder("main")
        self.scope: list[Value] = [
            self.b.input("x", "f32", (2, 3, 4)),
            self.b.input("y", "f32", (4, 1, 6)),
        ]

    def pick(self) -> Value:
        return self.draw(st.sampled_from(self.scope[-4:]))

    def module(self) -> Module:
        for _ in range(self.draw(st.integers(2, 9))):
            made = getattr(self, self.draw(st.sampled_from(KINDS)))(self.pick())
            if made.tensor.size is not None and made.tensor.size <= 4096:
                self.scope.append(made)
        self.b.output(*self.scope[-self.draw(st.integers(1, 3)) :])
        return self.b.build()

    def transpose(self, x: Value) -> Any:
        return self.b.transpose(x, axes=self.draw(st.permutations(range(x.ndim))))

    def reshape(self, x: Value) -> Any:
        size = x.tensor.size or 0
        rows = self.draw(st.sampled_from([d for d in (1, 2, 3, 4, 6) if size % d == 0]))
        shapes = [[rows, -1], [rows, size // rows, 1], [1, rows, -1], [-1]] if size else [[0]]
        return self.b.reshape(x, shape=self.draw(st.sampled_from(shapes)))

    def slice(self, x: Value) -> Any:
        axis = self.draw(st.integers(0, x.ndim - 1))
        start, end = (self.draw(st.integers(-3, 4)) for _ in range(2))
        return self.b.slice(x, starts=[start], ends=[end], axes=[axis])

    def concat(self, x: Value) -> Any:
        same = [v for v in self.scope if v.shape == x.shape]
        axis = self.draw(st.integers(0, x.ndim - 1))
        cut = self.draw(st.integers(0, 3))
        halves = [
            self.b.slice(x, starts=[0], ends=[cut], axes=[axis]),
            self.b.slice(x, starts=[cut], ends=[99], axes=[axis]),
        ]
        parts = self.draw(st.sampled_from([halves, [x], [x, self.draw(st.sampled_from(same))]]))
        return self.b.concat(*parts, axis=axis)

    def pad(self, x: Value) -> Any:
        pads = [self.draw(st.sampled_from([0, 0, 1])) for _ in range(2 * x.ndim)]
        return self.b.pad(x, before=pads[: x.ndim], after=pads[x.ndim :])

    def cast(self, x: Value) -> Any:
        there = self.b.cast(x, dtype=self.draw(st.sampled_from(["f64", "f16", "i32"])))
        return self.b.cast(there, dtype="f32")

    def unary(self, x: Value) -> Any:
        return self.b.emit(self.draw(st.sampled_from(["relu", "neg", "abs", "floor"])), x)

    def binary(self, x: Value) -> Any:
        same = [v for v in self.scope if v.shape == x.shape]
        name = self.draw(st.sampled_from(["add", "sub", "mul", "maximum"]))
        return self.b.emit(name, x, self.draw(st.sampled_from(same)))

    def constant(self, x: Value) -> Any:
        shape = x.tensor.static_shape
        sizes = [(), shape[-1:], shape, (1,) * len(shape)]
        number = self.draw(st.sampled_from([0.0, -0.0, 1.0, 3.0]))
        name = self.draw(st.sampled_from(["add", "sub", "mul", "div"]))
        array = np.full(self.draw(st.sampled_from(sizes)), number, "f4")
        return self.b.emit(name, x, array)

    def expand(self, x: Value) -> Any:
        wide = self.b.expand(x, shape=[2, *x.shape] if self.draw(st.booleans()) else x.shape)
        return self.b.add(wide, x) if self.draw(st.booleans()) else wide

    def reduce(self, x: Value) -> Any:
        axis = self.draw(st.integers(0, x.ndim - 1))
        name = self.draw(st.sampled_from(["sum", "max", "mean"]))
        if not x.tensor.static_shape[axis]:
            return x
        return self.b.emit(name, x, axes=[axis], keepdims=self.draw(st.booleans()) or x.ndim == 1)

    def product(self, x: Value) -> Any:
        if x.ndim < 2:
            return x
        transposed = self.b.transpose(x, axes=[*range(x.ndim - 2), x.ndim - 1, x.ndim - 2])
        made = self.b.matmul(x, transposed)
        order = self.draw(st.permutations(range(made.ndim)))
        # Values stay small enough to be exact.
        return self.b.transpose(self.b.minimum(made, 8.0), axes=order)


@st.composite
def shape_modules(draw: Any) -> Module:
    """A module main(x: f32[2, 3, 4], y: f32[4, 1, 6])."""
    return _Maker(draw).module()


def shape_inputs(seed: int = 0) -> list[Any]:
    rng = np.random.default_rng(seed)
    return [rng.integers(-4, 5, s).astype("float32") for s in ((2, 3, 4), (4, 1, 6))]
