"""What is refuted at a point is false there, and no search shows it."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tilewright.arith import Ranges, linear, prove
from tilewright.arith.nonnegative import _DEPTH, THOROUGH, _Search
from tilewright.arith.points import refuted
from tilewright.ir import Buffer, Cast, DType, Expr, Var, const, maximum, minimum

n, m, i, j, k = (Var(name) for name in "nmijk")
SIZES = Ranges().with_bounds(n, 0, None).with_bounds(m, 0, None)
LOOPS = SIZES.with_extent(i, n).with_extent(j, 16).with_extent(k, minimum(n - i, 4))
TABLE = Buffer("table", "int64", (n,))


@pytest.mark.parametrize(
    "total",
    [
        i - 1,
        n - i - 2,
        j - k,
        (i + j) // 4 - 1,
        n - (n + 3) // 4 * 4,
        maximum(i, j) - 1,
        n * m - n - 1,
        i % 7 - 1,
    ],
)
def test_what_is_false_somewhere_is_refuted(total: Expr) -> None:
    assert refuted(linear(total), LOOPS)


@pytest.mark.parametrize(
    "total",
    [
        n - i - 1,
        n - i - k - 1,
        15 - j,
        (n + 3) // 4 * 4 - n,
        n * 2 - minimum(i, n),
        i // 4 * 4 - i + 3,
    ],
)
def test_what_always_holds_is_not_refuted(total: Expr) -> None:
    assert not refuted(linear(total), LOOPS)


def test_facts_leave_points_out() -> None:
    assert refuted(linear(j - 8), LOOPS)
    assert not refuted(linear(j - 8), LOOPS.assuming(j >= 8))
    assert not refuted(linear(n - m), LOOPS.assuming(m + i < n))
    assert refuted(linear(m - n), LOOPS.assuming(m + i < n))


def test_what_nobody_knows_refutes_nothing() -> None:
    """The contents of memory, and what a narrow type cuts off."""
    read = TABLE[i]
    assert not refuted(linear(read), LOOPS)
    assert not refuted(linear(TABLE[i * 2 + 9]), LOOPS)
    assert not refuted(linear(j - 8), LOOPS.assuming(read + j >= 20))
    assert not refuted(linear(Cast(DType.of("int8"), j * 40)), LOOPS)


def test_bounds_may_speak_of_each_other() -> None:
    known = LOOPS.with_bounds(n, i + 1, 40)
    assert refuted(linear(n - i - 2), known)
    assert not refuted(linear(n - i - 1), known)


def test_bounds_by_memory_refute_nothing() -> None:
    known = SIZES.with_bounds(i, TABLE[m], None).with_bounds(j, None, TABLE[m])
    assert not refuted(linear(i - j), known)


def test_without_a_point_nothing_is_refuted() -> None:
    known = SIZES.assuming(n * m >= 437).assuming(n * m <= 437)
    assert not refuted(linear(n - 437), known)


def test_no_search_shows_what_is_refuted() -> None:
    """Random sums in random contexts."""
    refutations = 0
    for seed in range(600):
        chance = random.Random(seed)
        ranges, variables = _context(chance)
        total = linear(_sum(chance, variables, 3))
        if refuted(total, ranges):
            refutations += 1
            assert not _Search(ranges, THOROUGH).holds(total, _DEPTH), (seed, total, ranges)
    assert refutations > 100


def test_proofs_are_what_they_were() -> None:
    assert prove(i + k < n, LOOPS)
    assert not prove(i + k < n - 1, LOOPS)


def _context(chance: random.Random) -> tuple[Ranges, list[Var]]:
    variables = [Var(name) for name in "nmxyz"]
    ranges = Ranges().with_bounds(variables[0], 0, None)
    ranges = ranges.with_bounds(variables[1], 1, chance.choice([None, 9]))
    for at in range(2, 5):
        extent: Any = chance.randint(1, 20) if chance.random() < 0.4 else None
        if extent is None:
            extent = maximum(_sum(chance, variables[:at], 2), 1)
        ranges = ranges.with_extent(variables[at], extent)
    for _ in range(chance.randint(0, 2)):
        ranges = ranges.assuming(_sum(chance, variables, 2) >= chance.randint(0, 9))
    return ranges, variables


def _sum(chance: random.Random, variables: list[Var], depth: int) -> Expr:
    if depth == 0:
        return chance.choice([*variables, const(chance.randint(-9, 9))])
    a = _sum(chance, variables, depth - 1)
    b = _sum(chance, variables, depth - 1)
    by = chance.randint(2, 9)
    ways = [a + b, a - b, a * by, a // by, a % by, minimum(a, b), maximum(a, b), a + by]
    return chance.choice(ways)
