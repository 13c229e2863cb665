"""Convolutions as products: the windows of an image are gathered (im2col).

    for o: for y: for x: for c: for k:
        C[o, y, x] += W[o, c, k] * A[c, y + k, x]
    -->
    for y_x: for c_k: R[y_x, c_k] = A[c_k // 3, y_x // w + c_k % 3, y_x % w]
    for o: for y_x: for c_k: C[o, y_x] += W[o, c_k] * R[y_x, c_k]

Pixels become one dimension, and so do the variables of the sum where weights allow that.

The rule for products computes the copy tile by tile in shared memory. For callers that pass
addresses only.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from tilewright.ir import Block, Const, Iter, Var
from tilewright.schedule.primitives.buffers.merge_dimensions import GATHERS
from tilewright.schedule.rules.analysis import Access, as_contraction, has_own_loops
from tilewright.schedule.rules.gpu.grid import only_reduces
from tilewright.schedule.rules.rule import Rule, as_found
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target


class Windows(NamedTuple):
    """An operand that is read in windows, and the variables of the result's pixels."""

    image: Access
    pixels: Sequence[Iter]


def _match(s: Schedule, name: str, _target: Target) -> Windows | None:
    block = s.block_of(name)
    c = as_contraction(block) if only_reduces(block) and has_own_loops(s, name) else None
    if c is None or not c.rows or not c.columns or c.a.buffer is c.b.buffer:
        return None
    for access, pixels in ((c.a, c.rows), (c.b, c.columns)):
        if not _is_plain(access) and (_pairs(block, pixels) or _pairs(block, c.reduced)):
            return Windows(access, pixels)
    return None


def _is_plain(access: Access) -> bool:
    return all(isinstance(index, Var | Const) for index in access.indices)


def _pairs(block: Block, pixels: Sequence[Iter]) -> list[int]:
    """Pairs of pixel variables adjacent in the block, by the index of the first."""
    order = [it.var for it in block.iters]
    pairs = [(order.index(a.var), order.index(b.var)) for a, b in pairwise(pixels)]
    return [first for first, second in pairs if second == first + 1]


def _gather(s: Schedule, name: str, found: Windows, _target: Target) -> None:
    s.annotate(s.reindex(name, found.image.buffer), GATHERS, True)
    while any(_merge(s, name, index) for index in _all_pairs(s, name)):
        pass


def _all_pairs(s: Schedule, name: str) -> list[int]:
    """Pairs of adjacent variables of the pixels, and of the sum."""
    block = s.block_of(name)
    c = as_contraction(block)
    sides = () if c is None else (c.rows, c.columns, c.reduced)
    return [index for side in sides for index in _pairs(block, side)]


def _merge(s: Schedule, name: str, index: int) -> bool:
    if not s.can("merge_dimensions", name, index):
        return False
    s.merge_dimensions(name, index)
    return True


WINDOWS = Rule("windows", _match, as_found, _gather)
