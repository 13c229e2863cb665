"""merge_online(first, second, greatest)"""

from __future__ import annotations

from textwrap import dedent
from typing import Any

import numpy as np
import pytest

from tilewright.ir import interpret, parse_function, same_function, verify
from tilewright.schedule import Loop, Schedule, ScheduleError, Trace
from tilewright.tensor import te

ROWS = 4


def softmax_sums(length: int, *, power: str = "exp", late: bool = False) -> Any:
    """The sum of powers of what exceeds the greatest of a row, and one with weights."""
    A, V = te.placeholder((ROWS, length), name="A"), te.placeholder((length,), name="V")
    k, j, t = (te.reduce_axis(length) for _ in range(3))
    M = te.compute((ROWS,), lambda i: te.max(A[i, k], axis=k), name="M")

    def of(i: Any, x: Any) -> Any:
        difference = A[i, x] - M[i]
        return {"exp": te.exp(difference), "square": difference * difference}[power]

    P = te.compute((ROWS, length), of, name="P")
    S = te.compute((ROWS,), lambda i: te.sum(P[i, j], axis=j), name="S")
    W = te.compute((ROWS,), lambda i: te.sum(P[i, t] * V[t], axis=t), name="W")
    last = te.compute((ROWS,), lambda i: W[i] / S[i] + (P[i, 0] if late else 0.0), name="R")
    return te.function([A, V], [last], name="softmax_sums")


def by_chunks(s: Schedule, name: str, chunk: int) -> Loop:
    *outer, along = s.loops(name)
    over, inside = s.split(along, None, chunk)
    s.reorder(over, *outer, inside)
    return over


def prepared(function: Any, chunk: int) -> tuple[Schedule, Loop, Loop]:
    s = Schedule(function)
    first, sums, powers, weighted = (by_chunks(s, name, chunk) for name in ("M", "S", "P", "W"))
    second = s.merge(s.merge(powers, weighted), sums)
    for name, loop in (("M", first), ("S", second), ("W", second)):
        s.decompose_reduction(name, loop)
    return s, first, second


def answer(function: Any, a: Any, v: Any) -> Any:
    result = np.full(ROWS, 77, "f4")
    interpret(function, a, v, result)
    return result


@pytest.mark.parametrize("length", [12, 10, 3])
def test_sums_are_adapted_when_the_maximum_grows(length: int) -> None:
    function = softmax_sums(length)
    s, first, second = prepared(function, 4)
    loop, blocks = s.merge_online(first, second, "M")
    assert loop == first
    assert [b.name for b in blocks[:3]] == ["M_before", "M_shift", "M_growth"]
    verify(s.function)
    again = Trace.from_json(s.trace.to_json()).replay(function)
    assert same_function(again.function, s.function)
    random = np.random.default_rng(length)
    a, v = (random.normal(size=n).astype("f4") for n in ((ROWS, length), (length,)))
    a *= 20
    a[1, :2] = -np.inf
    a[2] = -np.inf
    a[3, 1] = np.nan
    want = answer(function, a, v)
    np.testing.assert_allclose(answer(s.function, a, v), want, rtol=1e-5, atol=1e-6)
    assert np.isnan(want).tolist() == [False, False, True, True]


def test_before_and_after(golden: Any) -> None:
    s, first, second = prepared(softmax_sums(12), 4)
    before = str(s)
    s.merge_online(first, second, "M")
    golden(f"{before}-->\n{s}", "schedule/merge_online")


def test_a_maximum_that_joins_parts() -> None:
    """Parts of the maximum are kept; it is found from them in each iteration."""
    function = softmax_sums(16)
    s = Schedule(function)
    *outer, along = s.loops("M")
    over, inside, part = s.split(along, None, 2, 2)
    parts = s.rfactor(part, 1).name
    *outer, over, inside, part = s.loops(parts)
    s.reorder(over, *outer, inside, part)
    sums, powers, weighted = (by_chunks(s, name, 4) for name in ("S", "P", "W"))
    second = s.merge(s.merge(powers, weighted), sums)
    for name, loop in ((parts, over), ("S", second), ("W", second)):
        s.decompose_reduction(name, loop)
    _, blocks = s.merge_online(over, second, "M")
    assert blocks[0].name == "M_start"
    random = np.random.default_rng(0)
    a, v = (random.normal(size=n).astype("f4") for n in ((ROWS, 16), (16,)))
    np.testing.assert_allclose(answer(s.function, a, v), answer(function, a, v), rtol=1e-5)


def test_other_functions_of_the_maximum_are_refused() -> None:
    s, first, second = prepared(softmax_sums(12, power="square"), 4)
    with pytest.raises(ScheduleError, match=r"block P does not compute e\^\(x - M"):
        s.merge_online(first, second, "M")


def test_powers_are_not_read_later() -> None:
    s, first, second = prepared(softmax_sums(12, late=True), 4)
    with pytest.raises(ScheduleError, match="block R reads P after the loop"):
        s.merge_online(first, second, "M")


def test_sums_begin_before_the_loop() -> None:
    s = Schedule(softmax_sums(12))
    first, sums, powers, weighted = (by_chunks(s, name, 4) for name in ("M", "S", "P", "W"))
    second = s.merge(s.merge(powers, weighted), sums)
    s.decompose_reduction("M", first)
    with pytest.raises(ScheduleError, match="is not proportional to the powers"):
        s.merge_online(first, second, "M")


def test_values_that_pass_between_iterations_are_refused() -> None:
    """The second loop reads what the first one writes later."""
    function = parse_function(
        dedent("""
        def f(A: f32[8], S: f32[1]):
            B = alloc(f32[8])
            M = alloc(f32[1])
            P = alloc(f32[8])
            with block("M_init"):
                writes(M[0])
                M[0] = f32("-inf")
            for i in range(8):
                with block("B", vi=spatial(8, i)):
                    reads(A[vi])
                    writes(B[vi])
                    B[vi] = A[vi]
                with block("M", vi=reduce(8, i)):
                    reads(M[0], A[vi])
                    writes(M[0])
                    M[0] = max(M[0], A[vi])
            with block("S_init"):
                writes(S[0])
                S[0] = 0.0
            for j in range(8):
                with block("P", vj=spatial(8, j)):
                    reads(B[7 - vj], M[0])
                    writes(P[vj])
                    P[vj] = exp(B[7 - vj] - M[0])
                with block("S", vj=reduce(8, j)):
                    reads(S[0], P[vj])
                    writes(S[0])
                    S[0] = S[0] + P[vj]
        """)
    )
    s = Schedule(function)
    with pytest.raises(ScheduleError, match="B may be handed from one iteration"):
        s.merge_online(s.loops("M")[0], s.loops("S")[0], "M")


def test_what_stands_between_and_is_read_before_is_refused() -> None:
    """It would be written too early."""
    function = parse_function(
        dedent("""
        def f(A: f32[8], B: f32[8], S: f32[1]):
            M = alloc(f32[1])
            P = alloc(f32[8])
            with block("M_init"):
                writes(M[0])
                M[0] = f32("-inf")
            for i in range(8):
                with block("M", vi=reduce(8, i)):
                    reads(M[0], B[vi])
                    writes(M[0])
                    M[0] = max(M[0], B[vi])
            for k in range(8):
                with block("B", vk=spatial(8, k)):
                    reads(A[vk])
                    writes(B[vk])
                    B[vk] = A[vk]
            with block("S_init"):
                writes(S[0])
                S[0] = 0.0
            for j in range(8):
                with block("P", vj=spatial(8, j)):
                    reads(A[vj], M[0])
                    writes(P[vj])
                    P[vj] = exp(A[vj] - M[0])
                with block("S", vj=reduce(8, j)):
                    reads(S[0], P[vj])
                    writes(S[0])
                    S[0] = S[0] + P[vj]
        """)
    )
    s = Schedule(function)
    with pytest.raises(ScheduleError, match="writes what is read before it"):
        s.merge_online(s.loops("M")[0], s.loops("S")[0], "M")
