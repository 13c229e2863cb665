"""Bounds, symbolic bounds, divisors and proofs."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.arith import (
    Interval,
    Ranges,
    bounds,
    divisor,
    linear,
    prove,
    prove_equal,
    simplify,
    symbolic_bounds,
)
from tilewright.ir import (
    Binary,
    Buffer,
    Cast,
    DType,
    Expr,
    Function,
    Seq,
    Var,
    any_of,
    binary,
    const,
    evaluate,
    maximum,
    minimum,
    select,
)

i, j, k, n, m, x, y = (Var(name) for name in "i j k n m x y".split())
s32, u8 = Var("s32", "int32"), Var("u8", "uint8")
KNOWN = Ranges().with_bounds(n, 0, None).with_extent(i, n).with_extent(j, 16).with_extent(k, 4)
TILED = (
    Ranges()
    .with_bounds(n, 0, None)
    .with_extent(i, (n + 3) // 4)
    .with_extent(k, minimum(n - i * 4, 4))
)


@pytest.mark.parametrize(
    ("expr", "low", "high"),
    [
        (j * 4 + k, 0, 63),
        (j - k, -3, 15),
        (j - j, 0, 0),
        (const(3) - j * 2, -27, 3),
        (i, 0, None),
        (x, None, None),
        (x % 7, 0, 6),
        (x % -7, -6, 0),
        (j // 4, 0, 3),
        ((j - 8) // 3, -3, 2),
        (minimum(x, 5), None, 5),
        (maximum(minimum(x, 5), 2), 2, 5),
        (select(x < 3, j, k + 20), 0, 23),
        (u8, 0, 255),
        (u8 + 1, 0, 255),
        (u8 // 16, 0, 15),
        (Cast(DType.of("int64"), u8) + 1, 1, 256),
        (binary("truncdiv", j - 8, const(3)), -8, 8),
        (binary("truncmod", j - 8, const(3)), -2, 2),
        (s32 & 15, 0, 15),
    ],
    ids=str,
)
def test_bounds(expr: Expr, low: int | None, high: int | None) -> None:
    assert bounds(expr, KNOWN) == Interval(low, high)


def test_ranges_refine_each_other() -> None:
    known = Ranges().with_extent(i, n).assuming((n <= 10) & (i >= 3))
    assert bounds(i, known) == Interval(3, 9)
    assert bounds(n, known) == Interval(1, 10)
    assert Ranges().with_bounds(x, 2, 5).with_bounds(x, None, None).limit(x) == Interval()


def test_contexts_ask_the_first_that_knew_as_much() -> None:
    start = Ranges()
    rows = start.with_extent(i, n)
    steps = rows.with_extent(k, 16)
    assert steps.asked_about(frozenset([i, n])) is rows
    assert steps.asked_about(frozenset([k])) is steps
    assert steps.asked_about(frozenset([x])) is start
    # A loop over i tells that n is not 0, and a condition on both tells of each.
    assert rows.asked_about(frozenset([n])) is rows
    linked = steps.assuming(k < x).with_bounds(k, 3, 5)
    assert linked.asked_about(frozenset([x])) is linked
    assert linked.asked_about(frozenset([i])) is rows
    A = Buffer("A", "int64", (4,))
    read = steps.assuming(A[0] < 3)
    assert read.asked_about(frozenset()) is read and bounds(A[0], read).high == 2


def test_a_function_tells_of_its_dimensions() -> None:
    function = Function("f", (Buffer("A", "float32", (n, m * 2)),), Seq(()))
    known = Ranges.for_function(function)
    assert prove(n + m >= 0, known)
    assert not prove(n + m >= 1, known)


@pytest.mark.parametrize(
    ("condition", "ranges"),
    [
        (i * 4 + k < n * 4, KNOWN),
        (i < n, KNOWN),
        (n >= 1, KNOWN),
        (i // 4 <= i, KNOWN),
        ((i // 4) * 4 <= i, KNOWN),
        (i - i // 4 * 4 < 4, KNOWN),
        (i * 16 + j <= n * 16 - 1, KNOWN),
        (any_of(x < 3, x >= 1), KNOWN),
        (minimum(x, y) <= x, KNOWN),
        (maximum(x, y) >= y, KNOWN),
        (i * 4 < n, TILED),
        (i * 4 + k < n, TILED),
        ((n + 3) // 4 * 4 >= n, TILED),
        (minimum(n - i * 4, 4) >= 1, TILED),
        (x + 1 < y, Ranges().assuming((x < m) & (m + 1 < y))),
        (x * 2 < y * 2 + 3, Ranges().assuming(x < y)),
        (x < y, Ranges().assuming(~(x >= y))),
        ((x * n + i) // n < m, KNOWN.assuming((x < m) & (x >= 0))),
        (x * n + i < m * n, KNOWN.with_extent(x, m)),
        (binary("ne", x * 4 + 2, y * 4), KNOWN),
        (binary("ne", x, y), Ranges().assuming(x < y)),
        (binary("eq", x, y), Ranges().assuming((x <= y) & (x >= y))),
        (i * 4 + 3 < m, Ranges().with_extent(i, m // 4)),
        (s32 + 1 > s32, Ranges().with_bounds(s32, 0, 100)),
        (Cast(DType.of("int64"), s32) < n, Ranges().with_extent(s32, 8).assuming(n >= 8)),
        (i // n < 8, KNOWN.with_extent(i, n * 8)),
        (i // n < m, KNOWN.with_extent(i, n * m)),
        (n >= 1, Ranges().with_extent(i, (n + 3) // 4)),
        (x * 5 + y < 128, Ranges().assuming(x * 20 + y * 4 < 512)),
    ],
    ids=str,
)
def test_is_proven(condition: Expr, ranges: Ranges) -> None:
    assert prove(condition, ranges)
    assert not prove(~condition, ranges)


@pytest.mark.parametrize(
    ("condition", "ranges"),
    [
        (i * 4 + j < n * 4, KNOWN),
        (i < n - 1, KNOWN),
        (i * 4 + 4 <= n, TILED),
        (x < y, Ranges()),
        (s32 + 1 > s32, Ranges()),
        ((x * y) // y <= x, Ranges().with_bounds(x, 0, None)),
        (binary("eq", x, y), Ranges().assuming(x <= y)),
        (i // n < 7, KNOWN.with_extent(i, n * 8)),
        (x * 5 + y < 127, Ranges().assuming(x * 20 + y * 4 < 512)),
    ],
    ids=str,
)
def test_is_not_proven(condition: Expr, ranges: Ranges) -> None:
    assert not prove(condition, ranges)


def test_equality() -> None:
    assert prove_equal((x + 1) * (x - 1), x * x - 1)
    assert prove_equal(minimum(n, x + 4) - x, minimum(n - x, 4))
    assert prove_equal(maximum(x, y) + minimum(x, y), x + y) is False
    assert prove_equal(i, const(0), Ranges().with_extent(i, 1))
    assert not prove_equal(x, s32)


@pytest.mark.parametrize(
    ("expr", "over", "low", "high"),
    [
        (i * 4 + k, [k], i * 4, minimum(n, i * 4 + 4) - 1),
        (i * 4 + k, [i, k], const(0), n - 1),
        (x - k, [k], x - minimum(n - i * 4, 4) + 1, x),
        (x, [k], x, x),
    ],
    ids=str,
)
def test_symbolic_bounds(expr: Expr, over: list[Var], low: Expr, high: Expr) -> None:
    found = symbolic_bounds(expr, TILED, over)
    assert found is not None
    assert prove_equal(found[0], low, TILED) and prove_equal(found[1], high, TILED), found


def test_symbolic_bounds_of_the_unbounded() -> None:
    assert symbolic_bounds(x + y, Ranges().with_extent(x, 4), [x, y]) is None
    found = symbolic_bounds(x % 4 + i, Ranges().with_bounds(x, None, None), [x])
    assert found is not None and found[0] is i and found[1] is simplify(i + 3)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_symbolic_bounds_hold_everywhere(data: st.DataObject) -> None:
    sizes = [data.draw(st.integers(1, 5)) for _ in range(2)]
    known = Ranges().with_extent(x, sizes[0]).with_extent(y, x + sizes[1])
    expr = data.draw(_nested([x, y, i]))
    found = symbolic_bounds(expr, known, [x, y])
    if found is None:
        return
    pairs = [(a, b) for a in range(sizes[0]) for b in range(a + sizes[1])]
    env: dict[Var, Any] = {x: [p[0] for p in pairs], y: [p[1] for p in pairs]}
    for value in (-7, 0, 3):
        env[i] = value
        low, high = (evaluate(end, {i: value}) for end in found)
        values = evaluate(expr, env)
        assert np.all((low <= values) & (values <= high)), f"{expr} leaves {found}"


@st.composite
def _nested(draw: Any, variables: list[Var], depth: int = 3) -> Expr:
    if depth == 0:
        return draw(st.sampled_from(variables))
    a = draw(_nested(variables, depth - 1))
    op = draw(st.sampled_from("add sub mul floordiv floormod min max".split()))
    if op in ("mul", "floordiv", "floormod"):
        return Binary(op, a, const(draw(st.integers(1, 6))))
    return Binary(op, a, draw(_nested(variables, depth - 1)))


@pytest.mark.parametrize(
    ("expr", "expected"),
    [
        (n * 4, 4),
        (n * 4 + 8, 4),
        (n * 4 + 6, 2),
        (const(0), 0),
        (const(-12), 12),
        (n * 6 * (m * 4), 24),
        (minimum(n * 4, m * 6), 2),
        ((n * 12) // 4, 3),
        ((n * 12) % 8, 4),
        (select(x < 1, n * 8, const(0)), 8),
        (s32 * 12, 4),
        (x, 1),
    ],
    ids=str,
)
def test_divisor(expr: Expr, expected: int) -> None:
    assert divisor(expr) == expected


def test_divisor_by_assumption() -> None:
    known = Ranges().assuming(binary("eq", n % 16, 0))
    assert divisor(n * 3 + 32, known) == 16
    assert simplify(n % 8, known) is const(0)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_divisors_divide(data: st.DataObject) -> None:
    expr = data.draw(_nested([x, y]))
    found = divisor(expr)
    points = list(itertools.product(range(-6, 7), repeat=2))
    values = evaluate(expr, {x: [p[0] for p in points], y: [p[1] for p in points]})
    assert np.all(values == 0) if found == 0 else np.all(values % found == 0)


def test_linear_and_back() -> None:
    total = linear((x + 2) * 3 - y * (x + 1))
    assert total.constant == 6
    assert total.terms == {x: 3, y: -1, simplify(x * y): -1}
    assert total.expr() is simplify((x + 2) * 3 - y * (x + 1))
    assert linear(const(7)).is_constant


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(-9, 9) | st.none(), min_size=4, max_size=4))
def test_interval_arithmetic(ends: list[int | None]) -> None:
    a, b = Interval(*ends[:2]), Interval(*ends[2:])
    rules = {
        "floordiv": (a.floordiv(b), lambda p, q: p // q if q else 0),
        "floormod": (a.floormod(b), lambda p, q: p % q if q else 0),
        "times": (a.times(b), lambda p, q: p * q),
        "plus": (a.plus(b), lambda p, q: p + q),
        "lesser": (a.lesser(b), min),
        "greater": (a.greater(b), max),
        "union": (a.union(b), lambda p, _: p),
    }
    for p, q in itertools.product(range(-14, 15), repeat=2):
        if a.contains(p) and b.contains(q):
            for name, (interval, rule) in rules.items():
                assert interval.contains(rule(p, q)), f"{a} {name} {b} misses {p}, {q}"


def test_what_runs_has_no_empty_side() -> None:
    """A grid of tiles along two sides of symbolic length."""
    tiles, block = (n + 127) // 128, Var("block")
    known = Ranges().with_bounds(n, 0, None)
    assert not prove(n >= 1, known)
    inside = known.with_extent(block, tiles * tiles * 8)
    assert prove(n >= 1, inside)
    assert prove(block % tiles < tiles, inside)
    assert prove(block // tiles % tiles < tiles, inside)
    assert not prove(n >= 2, inside)


def test_bounds_of_inner_loops_tell_of_quotients() -> None:
    """b // 11 is a tile among (n + 127) // 128, as b runs over eleven times as many."""
    tiles, block = (n + 127) // 128, Var("block")
    inside = Ranges().with_bounds(n, 1, None).with_extent(block, tiles * 11)
    assert prove(block // 11 < tiles, inside)
    assert not prove(block // 10 < tiles, inside)


def test_what_is_left_of_whole_tiles() -> None:
    n, rest = Var("n"), Var("rest")
    ranges = Ranges().with_bounds(n, 0, None).with_extent(rest, n % 16)
    assert prove(n // 16 * 16 + rest < n, ranges)
    assert not prove(n // 16 * 16 + rest + 1 < n, ranges)
