"""Which iterations of loops that were fused and split the variables of a block tell apart."""

from __future__ import annotations

from typing import Any

import pytest

from tilewright.arith import Ranges, knowing_nothing, simplify
from tilewright.ir import Block, Expr, Iter, Var, const, seq
from tilewright.schedule.facts.decoding import bindings_determine

B, T, U = Var("b"), Var("t"), Var("u")
RANGES = (
    knowing_nothing().with_extent(B, const(40)).with_extent(T, const(256)).with_extent(U, const(4))
)


def block(*bindings: Any, ranges: Ranges = RANGES) -> Block:
    values: list[Expr] = [simplify(value, ranges) for value in bindings]
    iters = tuple(Iter(Var(f"v{k}"), const(1000), "spatial") for k in range(len(values)))
    return Block("C", iters, tuple(values), seq())


N = B * 256 + T


@pytest.mark.parametrize(
    ("bindings", "tells_block", "tells_thread"),
    [
        ((N // 24, N // 8 % 3, N % 8), True, True),
        ((N % 5, N // 5), True, True),  # in another order
        ((U + 7, N // 24, N % 24), True, True),
        ((N // 24, N // 8 % 3 * 4 + U, N % 8), True, True),  # four of each
        ((N // 24, N // 8 % 3 * 3 + U, N % 8), False, False),  # the fourth is one of the next
        ((N // 24, N % 8), False, False),  # a digit is missing
        ((N // 24, N % 24 // 2), False, False),
        ((N // 24 + U, N % 24), False, False),  # what is added runs as well
        ((N % 9, N // 9 % 11), False, False),  # numbers beyond 99 are the same again
    ],
)
def test_digits_tell_the_loops(bindings: Any, tells_block: bool, tells_thread: bool) -> None:
    made = block(*bindings)
    assert bindings_determine(made, B, {T, U}, RANGES) == tells_block
    assert bindings_determine(made, T, {U}, RANGES) == tells_thread


def test_tiles_begin_where_outer_loops_say() -> None:
    """A tile of 16 x 9 elements, copied by 4 * 256 threads of which some do nothing."""
    number, outer = U * 256 + T, Var("o")
    ranges = RANGES.with_extent(outer, const(8))
    made = block(outer * 16 + number // 9, outer * 9 + number % 9, ranges=ranges)
    assert bindings_determine(made, T, {U}, ranges)
    assert not bindings_determine(made, T, {U, outer}, ranges), "then tiles overlap"


def test_digits_of_bases_that_are_known_only_when_the_program_runs() -> None:
    """Elements of 8 x n rows of 64, eight at a time."""
    n = Var("n")
    ranges = RANGES.with_bounds(n, 1, None).with_extent(U, const(8))
    number = N * 8 + U
    digits = number // (n * 64), number // 64 % n, number % 64
    values = [simplify(digit, ranges) for digit in digits]
    extents = (const(8), n, const(64))
    iters = tuple(Iter(Var(f"v{k}"), extent, "spatial") for k, extent in enumerate(extents))
    made = Block("C", iters, tuple(values), seq())
    assert bindings_determine(made, B, {T, U}, ranges)
    assert bindings_determine(made, T, {U}, ranges)
    fewer = Block("C", iters[:2], tuple(values[:2]), seq())
    assert not bindings_determine(fewer, T, {U}, ranges), "the lowest digit is missing"
