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


def chain(n: int = 7, m: int = 5, k: int = 6) -> Program:
    """Four blocks: an input made ready, a product, and two steps on the result."""
    A, B = te.placeholder((n, k), name="A"), te.placeholder((k, m), name="B")
    A1 = te.compute((n, k), lambda i, j: A[i, j] + 1.0, name="A1")
    r = te.reduce_axis(k, name="k")
    C = te.compute((n, m), lambda i, j: te.sum(A1[i, r] * B[r, j], axis=r), name="C")
    D = te.compute((n, m), lambda i, j: te.maximum(C[i, j], 0.0), name="D")
    E = te.compute((n, m), lambda i, j: D[i, j] * 2.0, name="E")
    a, b = _whole(n, k), _whole(k, m)
    function = te.function([A, B], [E], name="chain")
    return Program(function, (a, b), (np.maximum((a + 1) @ b, 0) * 2,))


def window(n: int = 11) -> Program:
    """A padded input, sums over windows of three, and what they differ from the middle by."""
    A = te.placeholder((n,), name="A")
    P = te.compute(
        (n + 2,),
        lambda i: te.if_then_else(te.all_of(i >= 1, i < n + 1), A[i - 1], 0.0),
        name="P",
    )
    r = te.reduce_axis(3, name="r")
    S = te.compute((n,), lambda i: te.sum(P[i + r], axis=r), name="S")
    D = te.compute((n,), lambda i: S[i] - P[i + 1] * 3.0, name="D")
    a = _whole(n)
    p = np.pad(a, 1)
    return Program(te.function([A], [D], name="window"), (a,), (p[:-2] + p[2:] - 2 * a,))


def normalized(n: int = 5, m: int = 9) -> Program:
    """Two reductions of each row with elementwise steps between them."""
    A = te.placeholder((n, m), name="A")
    k, r = te.reduce_axis(m, name="k"), te.reduce_axis(m, name="r")
    M = te.compute((n,), lambda i: te.max(A[i, k], axis=k), name="M")
    D = te.compute((n, m), lambda i, j: A[i, j] - M[i], name="D")
    T = te.compute((n,), lambda i: te.sum(D[i, r], axis=r), name="T")
    R = te.compute((n, m), lambda i, j: D[i, j] * 2.0 + T[i], name="O")
    a = _whole(n, m)
    d = a - a.max(1, keepdims=True)
    function = te.function([A], [R], name="normalized")
    return Program(function, (a,), (d * 2 + d.sum(1, keepdims=True),))


def diamond(n: int = 6) -> Program:
    """One block read by two, of which one reads it transposed, and a pair of results."""
    A = te.placeholder((n, n), name="A")
    T = te.compute((n, n), lambda i, j: A[i, j] * 2.0, name="T")
    U, V = te.compute((n, n), lambda i, j: (T[i, j] + 1.0, T[j, i] - 1.0), name="UV")
    W = te.compute((n, n), lambda i, j: U[i, j] * V[i, j] + T[i, j], name="W")
    t = _whole(n, n) * 2
    function = te.function([A], [W], name="diamond")
    return Program(function, (_whole(n, n),), ((t + 1) * (t.T - 1) + t,))


def _as_list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, Sequence) else [value]


Maker = Callable[..., Program]
PROGRAMS: dict[str, Maker] = {
    "matmul": matmul,
    "elementwise": elementwise,
    "row_max": row_max,
    "argmax": argmax,
    "running_sum": running_sum,
    "chain": chain,
    "window": window,
    "normalized": normalized,
    "diamond": diamond,
}


@pytest.fixture
def program() -> Callable[..., Program]:
    """`program("matmul", n=7)` makes one of the functions above."""
    return lambda name, **sizes: PROGRAMS[name](**sizes)
