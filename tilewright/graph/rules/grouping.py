"""Which axes a reshape merges and splits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tilewright.arith import prove_equal
from tilewright.graph.ir.types import known_dim, product
from tilewright.ir import Expr


class AxisGroup(NamedTuple):
    """Adjacent axes of one shape that hold the same elements as those of the other."""

    before: tuple[int, ...]
    after: tuple[int, ...]


def pieces_of(before: Sequence[Expr], after: Sequence[Expr]) -> list[AxisGroup] | None:
    """The smallest pieces that a reshape consists of; None where they are not known.

    [n, 3, 4, 5] to [n, 12, 5]: ((0), (0)), ((1, 2), (1)), ((3), (2)).
    Axes of one element belong to no axis of the other shape: ((1), ()), or ((), (1)).
    """
    pieces: list[AxisGroup] = []
    i = j = 0
    while i < len(before) or j < len(after):
        i, j, piece = _next(before, after, i, j)
        if piece is None:
            return None
        pieces.append(piece)
    return pieces


def _next(
    before: Sequence[Expr], after: Sequence[Expr], i: int, j: int
) -> tuple[int, int, AxisGroup | None]:
    if i < len(before) and j < len(after) and prove_equal(before[i], after[j]):
        return i + 1, j + 1, AxisGroup((i,), (j,))
    if i < len(before) and known_dim(before[i]) == 1:
        return i + 1, j, AxisGroup((i,), ())
    if j < len(after) and known_dim(after[j]) == 1:
        return i, j + 1, AxisGroup((), (j,))
    return _extended(before, after, i, j)


def _extended(
    before: Sequence[Expr], after: Sequence[Expr], i: int, j: int
) -> tuple[int, int, AxisGroup | None]:
    """Take in more axes of either side until both hold equally many elements."""
    a, b = i + 1, j + 1
    while a <= len(before) and b <= len(after):
        left, right = product(before[i:a]), product(after[j:b])
        if prove_equal(left, right):
            return a, b, AxisGroup(tuple(range(i, a)), tuple(range(j, b)))
        x, y = known_dim(left), known_dim(right)
        if x is not None and y is not None:
            a, b = (a + 1, b) if x < y else (a, b + 1)
        elif a - i <= b - j and a < len(before):
            a += 1
        else:
            b += 1
    return i, j, None
