"""Small functions to schedule, and the check that scheduling kept what they compute."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from tilewright.ir import Function, interpret, same_function, verify
from tilewright.schedule import Schedule, Trace
from tilewright.tensor import te


@dataclass(frozen=True)
class Program:
    """A function with arguments and the results that NumPy computes for them."""

    function: Function
    inputs: tuple[np.ndarray[Any, Any], ...]
    expected: tuple[np.ndarray[Any, Any], ...]

    def schedule(self) -> Schedule:
        return Schedule(self.function)

    def check(self, schedule: Schedule) -> None:
        """The schedule is well formed, computes the same, and replays from JSON to the same."""
        verify(schedule.function)
        outputs = [np.full(e.shape, 77, e.dtype) for e in self.expected]
        interpret(schedule.function, *self.inputs, *outputs)
        for output, expected in zip(outputs, self.expected, strict=True):
            np.testing.assert_array_equal(output, expected)
        again = Trace.from_json(schedule.trace.to_json()).replay(self.function)
        assert same_function(again.function, schedule.function)
        assert again.trace == schedule.trace


def _whole(*shape: int) -> np.ndarray[Any, Any]:
    """Whole numbers, so that sums in any order are the same."""
    seed = np.random.default_rng(len(shape) + sum(shape))
    return seed.integers(-4, 5, shape).astype("float32")


def matmul(n: int = 7, m: int = 5, k: int = 6, *, symbolic: bool = False) -> Program:
    rows = te.var("n") if symbolic else n
    A, B = te.placeholder((rows, k), name="A"), te.placeholder((k, m), name="B")
    r = te.reduce_axis(k, name="k")
    C = te.compute((rows, m), lambda i, j: te.sum(A[i, r] * B[r, j], axis=r), name="C")
    a, b = _whole(n, k), _whole(k, m)
    return Program(te.function([A, B], [C], name="matmul"), (a, b), (a @ b,))


def elementwise(n: int = 10, m: int = 7) -> Program:
    A = te.placeholder((n, m), name="A")
    B = te.compute((n, m), lambda i, j: A[i, j] * 2.0 + 1.0, name="B")
    a = _whole(n, m)
    return Program(te.function([A], [B], name="scale"), (a,), (a * 2 + 1,))


def row_max(n: int = 5, m: int = 13) -> Program:
    """Two blocks: the greatest of each row, and what is left when it is subtracted."""
    A = te.placeholder((n, m), name="A")
    k = te.reduce_axis(m, name="k")
    M = te.compute((n,), lambda i: te.max(A[i, k], axis=k), name="M")
    D = te.compute((n, m), lambda i, j: A[i, j] - M[i], name="D")
    a = _whole(n, m)
    return Program(te.function([A], [D], name="row_max"), (a,), (a - a.max(1, keepdims=True),))


def argmax(n: int = 4, m: int = 11) -> Program:
    A = te.placeholder((n, m), name="A")
    k = te.reduce_axis(m, name="k")
    R = te.compute((n,), lambda i: te.argmax(A[i, k], axis=k, with_value=True), name="R")
    a = _whole(n, m)
    return Program(te.function([A], list(R), name="argmax"), (a,), (a.argmax(1), a.max(1)))


def running_sum(n: int = 6, m: int = 4) -> Program:
    """A scan: every row is the row before plus the input."""
    X = te.placeholder((n, m), name="X")
    state = te.placeholder((n, m), name="state")
    init = te.compute((1, m), lambda _, j: X[0, j], name="first")
    update = te.compute((n, m), lambda t, j: state[t - 1, j] + X[t, j], name="step")
    S = te.scan(init, update, state, name="S")
    x = _whole(n, m)
    return Program(te.function([X], _as_list(S), name="running_sum"), (x,), (x.cumsum(0),))


def _as_list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, Sequence) else [value]


Maker = Callable[..., Program]
PROGRAMS: dict[str, Maker] = {
    "matmul": matmul,
    "elementwise": elementwise,
    "row_max": row_max,
    "argmax": argmax,
    "running_sum": running_sum,
}


@pytest.fixture
def program() -> Callable[..., Program]:
    """`program("matmul", n=7)` makes one of the functions above."""
    return lambda name, **sizes: PROGRAMS[name](**sizes)
