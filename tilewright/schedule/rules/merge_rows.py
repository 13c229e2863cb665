"""Merges adjacent dimensions that always occur together, of products, of transposes, and on GPUs of
sums along rows.

    for i in n: for j in s: for k: for r:          for i_j in n * s: for k: for r:
        C[i, j, k] += A[i, j, r] * B[r, k]   -->       C[i_j, k] += A[i_j, r] * B[r, k]

Tiles of rows or columns then cross the border between the two dimensions, and only the last tile is
partial; transposes read and write longer runs; thread blocks take several rows whatever their
number in each dimension. Parameters keep their memory but change shape: this is for callers that
pass addresses.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from tilewright.ir import Iter, const
from tilewright.schedule.facts.products import is_reduction
from tilewright.schedule.rules.analysis import as_contraction
from tilewright.schedule.rules.reductions.rows import walks_neighbours
from tilewright.schedule.rules.rule import Rule, as_found
from tilewright.schedule.rules.transpose_plan import as_transpose
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target


def merge_rows(s: Schedule, target: Target) -> None:
    """Merge dimensions until no more can be merged."""
    while _merge_first(s, target):
        pass


def _merge_first(s: Schedule, target: Target) -> bool:
    for ref in s.blocks():
        for index in _pairs(s, ref.name, target):
            if s.can("merge_dimensions", ref, index):
                s.merge_dimensions(ref, index)
                return True
    return False


def _pairs(s: Schedule, name: str, target: Target) -> list[int]:
    """The pairs of adjacent iterators of a block to merge, by the index of the first."""
    found: list[int] = []
    block = s.block_of(name)
    for first, second in (pair for side in _sides(s, name, target) for pair in pairwise(side)):
        index = next(k for k, it in enumerate(block.iters) if it.var is first.var)
        # A dimension of extent 1 may stand in between; it is merged first.
        between = [it for it in block.iters[index + 1 :][:1] if it.extent is const(1)]
        following = block.iters[index + 1 + len(between) :]
        if following and following[0].var is second.var:
            found.append(index)
    return found


def _sides(s: Schedule, name: str, target: Target) -> list[Sequence[Iter]]:
    """Groups of variables whose neighbours are worth merging: rows and columns, or all."""
    block = s.block_of(name)
    product = as_contraction(block)
    if product is not None:
        return [product.rows, product.columns]
    if target.gpu is not None and is_reduction(block) and walks_neighbours(s, name):
        return [[it for it in block.iters if it.kind == "spatial"]]
    return [] if as_transpose(block) is None else [block.iters]


def _has_pairs(s: Schedule, _block: str, target: Target) -> bool | None:
    return any(_pairs(s, b.name, target) for b in s.blocks()) or None


def _merge(s: Schedule, _block: str, _plan: bool, target: Target) -> None:
    merge_rows(s, target)


MERGE_ROWS = Rule("merge_rows", _has_pairs, as_found, _merge)
