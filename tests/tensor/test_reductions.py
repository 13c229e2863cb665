"""Reductions of compute definitions: sums and extrema, arguments of them, one's own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.tensor.definitions import blocks, f32
from tilewright.ir import (
    evaluate,
)
from tilewright.tensor import te


def test_reductions_against_numpy(check: Any, rng: Any) -> None:
    x = f32(rng, 4, 5)
    X, k = te.placeholder((4, 5), name="X"), te.reduce_axis(5)
    for name in ("sum", "prod", "min", "max"):
        reduce = getattr(te, name)
        T = te.compute((4,), lambda i, reduce=reduce: reduce(X[i, k], axis=k))
        check([X], [x], T, getattr(np, name)(x, axis=1))
    some = te.compute((4,), lambda i: te.any(X[i, k] > 1.0, axis=k))
    every = te.compute((4,), lambda i: te.all(X[i, k] > -1.0, axis=k))
    check([X], [x], [some, every], (x > 1).any(axis=1), (x > -1).all(axis=1))


def test_reductions_over_several_axes_where_something_holds(check: Any, rng: Any) -> None:
    x = f32(rng, 4, 5)
    X, r, c = te.placeholder((4, 5)), te.reduce_axis(4, "r"), te.reduce_axis((1, 4), "c")
    total = te.compute((), lambda: te.sum(X[r, c], axis=[r, c], where=X[r, c] > 0.0))
    inner = x[:, 1:4]
    check([X], [x], total, np.where(inner > 0, inner, 0).sum())
    most = te.compute((), lambda: te.max(X[r, c], axis=[r, c], where=r > c))
    rows, columns = np.mgrid[0:4, 1:4]
    check([X], [x], most, inner[rows > columns].max())


def test_identities_are_infinite_for_floats_and_the_limits_for_integers(check: Any) -> None:
    for dtype, low, high in (
        ("float32", -np.inf, np.inf),
        ("float16", -np.inf, np.inf),
        ("int8", -128, 127),
        ("uint8", 0, 255),
        ("bool", False, True),
    ):
        X, k = te.placeholder((2,), dtype), te.reduce_axis(2)
        most = te.compute((), lambda X=X, k=k: te.max(X[k], axis=k, where=k > 5))
        least = te.compute((), lambda X=X, k=k: te.min(X[k], axis=k, where=k > 5))
        x = np.ones(2, dtype)
        check([X], [x], [most, least], np.array(low, dtype), np.array(high, dtype))


def test_an_empty_reduction_gives_its_identity(check: Any) -> None:
    X, k = te.placeholder((3, 0)), te.reduce_axis(0)
    total = te.compute((3,), lambda i: te.sum(X[i, k], axis=k))
    check([X], [np.zeros((3, 0), "float32")], total, np.zeros(3, "float32"))


def test_nan_wins_min_and_max(check: Any) -> None:
    x = np.array([1, np.nan, 3], "float32")
    X, k = te.placeholder((3,)), te.reduce_axis(3)
    results = [
        te.compute((), lambda: te.min(X[k], axis=k)),
        te.compute((), lambda: te.max(X[k], axis=k)),
    ]
    check([X], [x], results, np.float32(np.nan), np.float32(np.nan))


@pytest.mark.parametrize("name", ["argmin", "argmax"])
@pytest.mark.parametrize(
    "x",
    [
        [3, 1, 3, 1],
        [1, np.nan, 5, np.nan],
        [-np.inf, -np.inf, -np.inf, -np.inf],
        [np.inf, np.inf, np.inf, np.inf],
    ],
)
def test_arg_reductions_take_the_first_and_nan(check: Any, name: str, x: list[float]) -> None:
    values = np.array(x, "float32")
    X, k = te.placeholder((4,)), te.reduce_axis(4)
    index, value = te.compute((), lambda: getattr(te, name)(X[k], axis=k, with_value=True))
    at = getattr(np, name)(values)
    check([X], [values], [index, value], at, values[at])
    alone = te.compute((), lambda: getattr(te, name)(X[k], axis=k))
    check([X], [values], alone, at)


def test_an_arg_reduction_does_not_depend_on_the_order() -> None:
    """Schedules reorder reductions: combining from the right gives the same pair."""
    X, k = te.placeholder((4,)), te.reduce_axis(4)
    reduction = te.argmax(X[k], axis=k)
    pairs = [(te.const(n), te.const(v)) for n, v in enumerate([2.0, 7.0, 7.0, float("nan")])]
    for a in pairs[:3]:
        for b in pairs[:3]:
            forward = [evaluate(e, {}) for e in reduction.combine(a, b)]
            assert forward == [evaluate(e, {}) for e in reduction.combine(b, a)]
    assert int(evaluate(reduction.combine(pairs[3], pairs[1])[0], {})) == 3
    assert int(evaluate(reduction.combine(pairs[1], pairs[3])[0], {})) == 3


def test_arg_reductions_over_several_axes_and_by_an_index(check: Any, rng: Any) -> None:
    x = f32(rng, 3, 4)
    X, r, c = te.placeholder((3, 4)), te.reduce_axis(3, "r"), te.reduce_axis(4, "c")
    flat = te.compute((), lambda: te.argmin(X[r, c], axis=[r, c]))
    check([X], [x], flat, np.argmin(x))
    row = te.compute((), lambda: te.argmin(X[r, c], axis=[r, c], index=r.astype("int32")))
    check([X], [x], row, np.int32(np.argmin(x) // 4))


def test_a_reducer_of_ones_own(check: Any, rng: Any) -> None:
    x = f32(rng, 6)
    X, k = te.placeholder((6,)), te.reduce_axis(6)
    norm = te.comm_reducer(lambda a, b: a + te.abs(b), 0, name="norm")
    check([X], [x], te.compute((), lambda: norm(X[k], axis=k)), np.abs(x).sum())


def test_a_reducer_of_several_values_is_simultaneous(check: Any, rng: Any) -> None:
    """Complex products: each new part needs both old ones."""
    re, im = f32(rng, 5), f32(rng, 5)
    R, J, k = te.placeholder((5,), name="R"), te.placeholder((5,), name="J"), te.reduce_axis(5)
    times = te.comm_reducer(
        lambda a, b: (a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]),
        lambda d, _: (1, 0),
        name="times",
    )
    x, y = te.compute((), lambda: times((R[k], J[k]), axis=k), name="product")
    expected = np.prod(re + 1j * im)
    check([R, J], [re, im], [x, y], np.float32(expected.real), np.float32(expected.imag))


def test_several_reductions_in_one_pass(check: Any, rng: Any) -> None:
    x = f32(rng, 3, 5)
    X, k = te.placeholder((3, 5)), te.reduce_axis(5)
    total, most = te.compute((3,), lambda i: (te.sum(X[i, k], k), te.max(X[i, k], axis=k)))
    assert len(blocks(te.function([X], [total, most]))) == 1
    check([X], [x], [total, most], x.sum(axis=1), x.max(axis=1))
