"""Random modules for property tests: elementwise operators, branches, loops, closures, tuples."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from tilewright.graph import Builder, Module, Value

UNARY = ["relu", "neg", "abs", "tanh", "identity", "dropout", "floor"]
BINARY = ["add", "sub", "mul", "maximum", "minimum"]
KINDS = ["unary", "binary", "constant", "scalar", "branch", "loop", "closure", "tuple", "cast"]


class _Maker:
    """Emits random bindings over the values in scope, all of type f32[n, 3]."""

    def __init__(self, draw: Any) -> None:
        self.draw = draw
        self.b = Builder("main")
        x = self.b.input("x", "f32", ("n", 3))
        self.scope: list[Value] = [x, self.b.input("y.0", "f32", ("n", 3))]
        self.flag = self.b.input("flag", "bool")

    def pick(self) -> Value:
        return self.scope[self.draw(st.integers(0, len(self.scope) - 1))]

    def module(self) -> Module:
        for _ in range(self.draw(st.integers(1, 8))):
            self.scope.append(self.step(2))
        self.b.output(*(self.pick() for _ in range(self.draw(st.integers(1, 3)))))
        return self.b.build()

    def step(self, depth: int) -> Any:
        kinds = KINDS if depth else KINDS[:4]
        return getattr(self, self.draw(st.sampled_from(kinds)))(depth)

    def unary(self, _depth: int) -> Any:
        return self.b.emit(self.draw(st.sampled_from(UNARY)), self.pick())

    def binary(self, _depth: int) -> Any:
        return self.b.emit(self.draw(st.sampled_from(BINARY)), self.pick(), self.pick())

    def constant(self, _depth: int) -> Any:
        size = self.draw(st.sampled_from([(3,), (1, 3), (1, 1), ()]))
        seed = self.draw(st.integers(0, 3))
        array = np.random.default_rng(seed).integers(-3, 3, size).astype("float32")
        both = self.b.mul(self.b.constant(array), self.b.constant(array + 1))
        return self.b.add(self.pick(), both)

    def scalar(self, _depth: int) -> Any:
        special = [0.5, float("inf"), float("-inf"), float("nan"), -0.0, 1e-30]
        return self.b.maximum(self.pick(), self.draw(st.sampled_from(special)))

    def cast(self, _depth: int) -> Any:
        there = self.b.cast(self.pick(), dtype=self.draw(st.sampled_from(["f64", "f16", "f32"])))
        return self.b.cast(there, dtype="f32")

    def inner(self, depth: int) -> Any:
        """Some steps whose values are forgotten again."""
        count = len(self.scope)
        for _ in range(self.draw(st.integers(1, 2))):
            self.scope.append(self.step(depth - 1))
        result = self.pick()
        del self.scope[count:]
        return result

    def branch(self, depth: int) -> Any:
        constant = self.b.constant(self.draw(st.booleans()), "bool")
        condition = self.draw(st.sampled_from([self.flag, constant]))
        return self.b.branch(condition, lambda: self.inner(depth), lambda: self.inner(depth))

    def loop(self, depth: int) -> Any:
        def body(i: Value, state: Value) -> Any:
            self.scope.append(self.b.add(state, self.b.cast(i, dtype="f32")))
            result = self.inner(depth)
            self.scope.pop()
            return [result], [result]

        trips = self.draw(st.integers(0, 3))
        state, _ = self.b.loop(trips, [self.pick()], body)
        return state

    def closure(self, depth: int) -> Any:
        def body(v: Value) -> Any:
            self.scope.append(v)
            result = self.inner(depth)
            self.scope.remove(v)
            return result

        return self.b.call(self.b.closure([self.scope[0].type], body), self.pick())

    def tuple(self, _depth: int) -> Any:
        made = self.b.make_tuple(self.pick(), self.pick())
        return self.b.project(made, self.draw(st.integers(0, 1)))


@st.composite
def modules(draw: Any) -> Module:
    """A module main(x: f32[n, 3], y.0: f32[n, 3], flag: bool[])."""
    return _Maker(draw).module()


def inputs(seed: int = 0, n: int = 2, flag: bool = True) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    x, y = (rng.integers(-4, 5, (n, 3)).astype("float32") for _ in range(2))
    return {"x": x, "y.0": y, "flag": np.array(flag)}
