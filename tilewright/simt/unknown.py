"""Tracks unknown values, from uninitialized memory, through expressions.

The result of an unknown operand is unknown, except for the operand that a select does not choose.
Indices must be known, and so must what statements require (`simt.machine`): conditions, extents,
and values stored to the caller's memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tilewright.ir import Binary, Call, Expr, Load, Select, Var
from tilewright.simt.error import UnknownError
from tilewright.simt.lanes import Array, Mask, in_warp, mask_for, of_threads


class Computed(NamedTuple):
    """A computed node: its slot, those of its operands, and its context."""

    node: Expr
    slot: int
    operands: tuple[int, ...]
    context: int
    context_lanes: int


def follow(
    nodes: Sequence[Computed],
    slots: list[Any],
    found: dict[int, Array],
    variables: dict[Var, Array],
) -> None:
    """Add to `found`, which has the loads, all slots that are unknown in some lanes."""
    for each in nodes:
        unknown = [
            mask_for(found.get(slot), operand.dtype.lanes, each.node.dtype.lanes)
            for slot, operand in zip(each.operands, each.node.operands, strict=True)
        ]
        if isinstance(each.node, Load):
            _require_known(each, slots, unknown)
            continue
        result = variables.get(each.node) if isinstance(each.node, Var) else None
        if any(u is not None for u in unknown):
            result = _spread(each, slots, unknown)
        if result is not None:
            found[each.slot] = result


def _require_known(each: Computed, slots: list[Any], unknown: list[Mask]) -> None:
    wanted = mask_for(slots[each.context], each.context_lanes, each.node.dtype.lanes)
    for mask in unknown:
        if mask is not None:
            raise_where(mask, wanted, "where an element lies")


def raise_where(unknown: Array, wanted: Mask, what: str) -> None:
    """Raise an error for the first active lane with an unknown value."""
    bad = unknown if wanted is None else unknown & wanted
    if bad.any():
        raise UnknownError(bad, what)


def _spread(each: Computed, slots: list[Any], unknown: list[Mask]) -> Array:
    masks = [np.zeros((), bool) if u is None else u for u in unknown]
    node = each.node
    if isinstance(node, Call) and node.name == "of_lane":
        source, lanes = in_warp(slots[each.operands[1]]), node.dtype.lanes
        where = masks[1][..., None] if lanes > 1 and masks[1].ndim else masks[1]
        return of_threads(masks[0], source, lanes) | where
    if isinstance(node, Select):
        chosen = np.asarray(slots[each.operands[0]])
        if node.condition.dtype.lanes < node.dtype.lanes:
            chosen = chosen[..., None]
        return masks[0] | np.where(chosen, masks[1], masks[2])
    if isinstance(node, Binary) and node.op in ("and", "or"):
        first = np.asarray(slots[each.operands[0]])
        return masks[0] | (masks[1] & (first if node.op == "and" else ~first))
    result = masks[0]
    for mask in masks[1:]:
        result = result | mask
    return result
