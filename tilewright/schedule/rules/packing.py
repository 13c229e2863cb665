"""Packing the operands of a product for instructions that take groups along the reduction.

    D[…, i // width, k // group, i % width * group + k % group] = S[…, i, …, k, …]

The packed operand is a copy, or what pads the operand with zeros anyway.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.ir import Expr, Load, Var
from tilewright.schedule.handles import Loop
from tilewright.schedule.intrinsics import interleave
from tilewright.schedule.rules.analysis import Access, stores_of
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target


@dataclass(frozen=True)
class Packed:
    """The block that packs an operand, and which of its dimensions go which way."""

    block: str
    across: int
    along: int
    width: int
    group: int


def pack_operand(
    s: Schedule, user: str, access: Access, across: Var, along: Var, width: int, group: int
) -> Packed:
    """Let the block `user` read the operand packed: `width` rows or columns, `group` along."""
    names = [i.name if isinstance(i, Var) else "" for i in access.indices]
    outer, inner = names.index(across.name), names.index(along.name)

    def blocked(*at: Expr) -> tuple[Expr, ...]:
        rest = [i for n, i in enumerate(at) if n not in (outer, inner)]
        i, k = at[outer], at[inner]
        return (*rest, i // width, k // group, i % width * group + k % group)

    copy = _copy_of(s, user, access)
    s.transform_layout(copy, 0, blocked)
    return Packed(copy, outer, inner, width, group)


def _copy_of(s: Schedule, user: str, access: Access) -> str:
    """The block that makes the operand: the one that pads it, or a new one that copies."""
    for made in s.producers(user):
        if made.name.endswith("_pad") and s.block_of(made).writes[0].buffer is access.buffer:
            return made.name
    return s.cache_read(user, access.buffer).name


def schedule_packing(
    s: Schedule, packed: Packed, loops: Sequence[Loop], target: Target
) -> Loop | None:
    """Pack whole groups at a time; `loops` are those of both dimensions. Gives the outermost."""
    if len(loops) != 2:
        return None
    first_is_across = packed.across < packed.along
    across, along = loops if first_is_across else reversed(loops)
    block = s.block_of(packed.block)
    lanes = _lanes(packed, target.lanes(block.writes[0].buffer.dtype))
    tile, vectors, lane = s.split(across, None, packed.width // lanes, lanes)
    steps, group = s.split(along, None, packed.group)
    s.reorder(tile, steps, vectors, lane, group)
    if _is_copy_of_rows(s, packed) and lanes > 1:
        s.tensorize(lane, interleave(block.writes[0].buffer.dtype, lanes, packed.group))
    else:
        s.vectorize(group)
    return tile


def _lanes(packed: Packed, most: int) -> int:
    """The widest vector of which whole ones make the width."""
    while packed.width % most:
        most //= 2
    return most


def _is_copy_of_rows(s: Schedule, packed: Packed) -> bool:
    """Whether the block only copies, from where neighbours across lie side by side."""
    block = s.block_of(packed.block)
    (store,) = stores_of(block)
    if not isinstance(store.value, Load):
        return False
    return Access(store.value.buffer, store.value.indices).step(block.iters[packed.across].var) == 1
