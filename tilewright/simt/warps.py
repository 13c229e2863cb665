"""Products by warps (`ir.warps`), executed for all warps at once."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from tilewright.ir import SUMS, TILE_SIDE, WARP, Factors, WarpProduct, sum_place
from tilewright.simt.error import LaneError
from tilewright.simt.lanes import Array, Lanes, Mask
from tilewright.simt.memory import Memory
from tilewright.simt.unknown import raise_where

#: The bits of a float32 that TF32 keeps: all but thirteen of the fraction's.
_FIRST: Final = np.uint32(0xFFFFE000)


def multiply(
    product: WarpProduct, lanes: Lanes, memories: list[Memory], places: list[Array], active: Mask
) -> None:
    """C += A · B; `places` are the indices of each thread's sums, and of its elements of A and B.

    Whole warps must take part, and operands must be known.
    """
    require_whole(lanes, active, WARP, "warp")
    counts = SUMS, product.factors.neighbours, product.factors.neighbours
    c, a, b = (
        _neighbours(lanes, memory, place, count, active)
        for memory, place, count in zip(memories, places, counts, strict=True)
    )
    row, column = np.indices((TILE_SIDE, TILE_SIDE))
    lane, own = sum_place(row, column)
    if product.a_is_own:
        left = a.reshape(a.shape[0], -1, WARP, SUMS)[:, :, lane, own]
    else:
        left = _tile(a, product.a_start)
    left = np.swapaxes(left, -1, -2) if product.a_by_columns else left
    right = _tile(b, product.b_start)
    right = np.swapaxes(right, -1, -2) if product.b_by_columns else right
    sums = multiplied(product.factors, left, right)
    added = np.zeros(c.shape, sums.dtype).reshape(*sums.shape[:2], WARP, SUMS)
    added[:, :, lane, own] = sums
    index = np.broadcast_to(places[0], lanes.shape)[..., None] + np.arange(SUMS)
    wanted = None if active is None else active[..., None]
    memories[0].store(lanes, index, c + added.reshape(c.shape), None, wanted)


def multiplied(factors: Factors, left: Array, right: Array) -> Array:
    """Products of tiles as stored in memory, where small formats are integers of their bits."""
    left, right = left.view(factors.a.numpy), right.view(factors.b.numpy)
    dtype = factors.sums.numpy
    if factors.a.numpy == np.float32:
        left, right = _first_bits(left), _first_bits(right)
    return left.astype(dtype) @ right.astype(dtype)


def _first_bits(values: Array) -> Array:
    """float32 truncated to TF32."""
    return (values.view(np.uint32) & _FIRST).view(np.float32)


def require_whole(lanes: Lanes, active: Mask, threads: int, kind: str) -> None:
    """Refuse products in which only some threads of a warp, or of a group of warps, take part."""
    if active is None:
        return
    taking = np.broadcast_to(active, lanes.shape).reshape(lanes.blocks, -1, threads)
    parted = (taking.any(axis=2, keepdims=True) & ~taking).reshape(-1)
    if parted.any():
        reason = f"it does not take part in a product that others of its {kind} compute"
        raise LaneError(int(np.argmax(parted)), reason)


def _neighbours(lanes: Lanes, memory: Memory, place: Array, count: int, active: Mask) -> Array:
    """The elements that each thread addresses: (blocks, threads, count)."""
    wanted = None if active is None else active[..., None]
    index = np.broadcast_to(place, lanes.shape)[..., None] + np.arange(count)
    found, unknown = memory.load(lanes, index, wanted)
    if unknown is not None:
        raise_where(unknown, wanted, f"what a warp multiplies from {memory.buffer.name}")
    return np.broadcast_to(found, index.shape)


def _tile(values: Array, start: Any) -> Array:
    """The tiles of all warps as stored in shared memory: (blocks, warps, 16, 2 · neighbours)."""
    blocks, threads, count = values.shape
    tile = np.zeros((blocks, threads // WARP, TILE_SIDE, 2 * count), values.dtype)
    rows, columns = start(np.arange(WARP))
    own = values.reshape(blocks, -1, WARP, count)
    tile[:, :, rows[:, None], columns[:, None] + np.arange(count)] = own
    return tile
