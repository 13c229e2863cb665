"""Merges neighbouring dimensions of products, and of transposes, that always go together.

    for i in n: for j in s: for k: for r:          for i_j in n * s: for k: for r:
        C[i, j, k] += A[i, j, r] * B[r, k]   -->       C[i_j, k] += A[i_j, r] * B[r, k]

Tiles of rows or columns then run across the border between the two dimensions, and only the last
tile is partial; transposes read and write longer runs. Parameters keep their memory and get another
shape: this is for callers that pass addresses.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from tilewright.ir import Block, Iter, const
from tilewright.schedule.rules.analysis import as_contraction
from tilewright.schedule.rules.rule import Rule, as_found
from tilewright.schedule.rules.transpose_plan import as_transpose
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target


def merge_rows(s: Schedule) -> None:
    """Merge what can be merged."""
    while _merge_first(s):
        pass


def _merge_first(s: Schedule) -> bool:
    for ref in s.blocks():
        for index in _pairs(s.block_of(ref)):
            if s.can("merge_dimensions", ref, index):
                s.merge_dimensions(ref, index)
                return True
    return False


def _pairs(block: Block) -> list[int]:
    """The neighbouring iterators of a block that are better merged, by the first of each two."""
    found: list[int] = []
    for first, second in (pair for side in _sides(block) for pair in pairwise(side)):
        index = next(k for k, it in enumerate(block.iters) if it.var is first.var)
        # A dimension of one element may stand between the two, which is merged first.
        between = [it for it in block.iters[index + 1 :][:1] if it.extent is const(1)]
        following = block.iters[index + 1 + len(between) :]
        if following and following[0].var is second.var:
            found.append(index)
    return found


def _sides(block: Block) -> list[Sequence[Iter]]:
    """The variables of which neighbours are better merged: rows, and columns, or all."""
    product = as_contraction(block)
    if product is not None:
        return [product.rows, product.columns]
    return [] if as_transpose(block) is None else [block.iters]


def _has_pairs(s: Schedule, _block: str, _target: Target) -> bool | None:
    return any(_pairs(s.block_of(b)) for b in s.blocks()) or None


def _merge(s: Schedule, _block: str, _plan: bool, _target: Target) -> None:
    merge_rows(s)


MERGE_ROWS = Rule("merge_rows", _has_pairs, as_found, _merge)
