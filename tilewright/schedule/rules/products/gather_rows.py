"""im2col: copies the operand's rows where they are not contiguous (windows of a convolution,
channels in blocks).

    for y: for x: for o: for c: for k:
        C[y, x, o] += A[c, y + k, x] * B[c, k, o]
    -->
    for y_x: for c: for k: R[y_x, c, k] = A[c, y_x // w + k, y_x % w]
    for y_x: for o: for c: for k: C[y_x, o] += R[y_x, c, k] * B[c, k, o]

Height and width become one dimension of rows, and the rule for products computes the copy in
chunks, in the order in which its tiles read it. That pays where a tile of rows and a panel of
columns do not stay in L1 between uses, and where an instruction needs packed rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import prod
from typing import Final, NamedTuple

from tilewright.ir import Block, Const, Iter, Var, const
from tilewright.schedule.error import RefusedError
from tilewright.schedule.primitives.buffers.merge_dimensions import GATHERS
from tilewright.schedule.rules.analysis import (
    Contraction,
    as_contraction,
    constants_of,
    extent_of,
)
from tilewright.schedule.rules.merge_rows import merge_rows
from tilewright.schedule.rules.products.available import has_packed_product, reads_rows_in_place
from tilewright.schedule.rules.products.product import is_plain
from tilewright.schedule.rules.rule import Rule, if_wanted
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target

#: Typical rows of a tile.
_TILE: Final = 16
#: The fewest rows worth gathering.
_LEAST_ROWS: Final = 16


class Gathered(NamedTuple):
    """A product, and the variables of its rows that become one dimension."""

    contraction: Contraction
    rows: list[Iter]


def _scattered_rows(s: Schedule, name: str, target: Target) -> Gathered | None:
    """A product whose rows are not contiguous, where a copy of them pays."""
    block = s.block_of(name)
    c, constants = as_contraction(block), constants_of(s.function)
    if c is None or c.a.buffer in constants or reads_rows_in_place(block, constants, target):
        return None
    rows = _neighbours(c.rows, block)
    return Gathered(c, rows) if _are_known(c, rows) and _gains(c, rows, target) else None


def _gather(s: Schedule, name: str, plan: Gathered, target: Target) -> None:
    c = plan.contraction
    s.annotate(s.reindex(name, c.a.buffer.name), GATHERS, True)
    if not all(isinstance(i, Var | Const) for i in c.b.indices) and _is_packed(c, target):
        # Columns with channels in groups: packing gathers them, too.
        s.reindex(name, c.b.buffer.name)
    merge_rows(s, target)
    after = as_contraction(s.block_of(name))
    assert after is not None
    is_whole = len(c.rows) - len(after.rows) == len(plan.rows) - 1
    if not is_whole and not _is_packed(c, target):
        raise RefusedError(f"the rows of {name} do not become one dimension")


GATHER_ROWS = Rule("gather_rows", _scattered_rows, if_wanted, _gather)


def _neighbours(rows: Sequence[Iter], block: Block) -> list[Iter]:
    """The last variables of the rows that are contiguous in the result: those of one image."""
    order = [it.var for it in block.iters if it.extent is not const(1)]
    found: list[Iter] = []
    for it in reversed(rows):
        if found and order.index(it.var) + 1 != order.index(found[0].var):
            break
        found.insert(0, it)
    return found


def _are_known(c: Contraction, rows: Sequence[Iter]) -> bool:
    """Whether rows consist of contiguous runs, all of known lengths."""
    known = bool(rows) and all(extent_of(it) is not None for it in (*rows, *c.reduced))
    runs = _runs(c)
    return known and bool(runs) and c.a.step(runs[-1].var) == 1


def _runs(c: Contraction) -> list[Iter]:
    return [it for it in c.reduced if extent_of(it) != 1]


def _gains(c: Contraction, rows: Sequence[Iter], target: Target) -> bool:
    """Whether a copy of the rows pays, or an instruction needs it."""
    return _is_packed(c, target) or (_is_scattered(c) and _pays(c, rows, target))


def _is_scattered(c: Contraction) -> bool:
    """Whether the runs of a row are not contiguous with each other."""
    pairs = pairwise(_runs(c))
    steps = [(c.a.step(a.var), c.a.step(b.var), extent_of(b) or 0) for a, b in pairs]
    return any(b is None or a != b * length for a, b, length in steps)


def _is_packed(c: Contraction, target: Target) -> bool:
    """Whether an instruction that needs packed rows applies, and these are not packed."""
    types = c.a.buffer.dtype, c.b.buffer.dtype, c.out.buffer.dtype
    if is_plain(c) or c.a.buffer.dtype is c.out.buffer.dtype:
        return False
    return has_packed_product(target, types)


def _pays(c: Contraction, rows: Sequence[Iter], target: Target) -> bool:
    count, depth, columns = (_product(its) for its in (rows, c.reduced, c.columns))
    size, run = c.a.buffer.dtype.itemsize, extent_of(c.reduced[-1]) or 0
    lanes = target.lanes(c.out.buffer.dtype) * target.fma_ports
    is_far = depth * _TILE * size >= target.caches.l1d // 4
    is_whole = run % target.lanes(c.a.buffer.dtype) == 0
    saves = target.timing.gather_gain * columns / lanes > target.timing.gather_cycles
    return is_far and is_whole and count >= _LEAST_ROWS and saves


def _product(iters: Sequence[Iter]) -> int:
    return prod(extent_of(it) or 1 for it in iters)
