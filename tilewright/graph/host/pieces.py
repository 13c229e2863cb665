"""Joins the items of a list into a tensor, and splits a tensor into items."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from tilewright.arith import simplify
from tilewright.graph.host.lists import agree, each, empty_list, know, make_room
from tilewright.graph.host.memory import Memory, part_of
from tilewright.graph.host.places import AddressPlace, Place
from tilewright.graph.ir import Value
from tilewright.graph.ir.types import product
from tilewright.graph.sizes.axes import axis_of
from tilewright.ir import Assert, Expr, Load, call, cast, const, minimum

_NAME: Final = "concat_from_sequence"


def join_items(m: Memory, items: Value, result: Value, axis: int, *, stacks: bool) -> None:
    """Join all items along an axis, which is a new one if that `stacks` them."""
    place, axis = m.list_of(items), axis_of(axis, result.ndim)
    count = m.cell(place.length)
    m.emit(Assert(count > 0, f"{_NAME}: the sequence is empty"))
    others = [a for a in range(result.ndim) if a != axis]
    dims = {k if stacks else a: result.shape[a] for k, a in enumerate(others)}
    rank = result.ndim - stacks
    agree(m, _NAME, place, const(0), dims, rank)
    total = m.cell(count if stacks else 0)
    with each(m, count) as k:
        agree(m, _NAME, place, k, dims, rank)
        if not stacks:
            m.assign(total, total + place.extent(k, axis))
    if not know(m, result.shape[axis], total):
        size = m.expr(result.shape[axis])
        m.emit(Assert(size == total, f"{_NAME}: {{}} in all, not {{}}", (total, size)))
    room, slab = m.allocate(result), _Slab(m, result, axis)
    at = m.cell(0)
    with each(m, count) as k:
        part = m.cell(1 if stacks else place.extent(k, axis))
        source = AddressPlace(cast(m.cell(place.item(k)), "uint64"))
        slab.copy(part_of(room, slab.start(at)), total, source, part, part)
        m.assign(at, at + part)


def split_to_items(
    m: Memory, x: Value, split: Value | None, result: Value, axis: int, *, drops: bool
) -> None:
    """Split a tensor into parts along an axis, which is removed from them if that `drops` it."""
    axis = axis_of(axis, x.ndim)
    extent = m.cell(m.expr(x.shape[axis]))
    parts = _parts(m, extent, split)
    place, slab = empty_list(m, result), _Slab(m, x, axis)
    at = m.cell(0)
    with each(m, parts.number) as k:
        part = m.cell(parts.size(k))
        dims = [m.expr(d) for d in x.shape]
        dims[axis : axis + 1] = [] if drops else [part]
        make_room(m, place, k, x, dims)
        target = AddressPlace(cast(m.cell(place.item(k)), "uint64"))
        slab.copy(target, part, part_of(m.place(x), slab.start(at)), extent, part)
        m.assign(at, at + part)


class _Parts(NamedTuple):
    """The number of parts, and the size of each."""

    number: Expr
    size: Callable[[Expr], Expr]


def _parts(m: Memory, extent: Load, split: Value | None) -> _Parts:
    if split is None:
        return _Parts(extent, _one)
    if not split.ndim:
        step = m.cell(m.number(split))
        m.emit(Assert(step > 0, "split_to_sequence: parts of {} make up nothing", (step,)))

        def even(k: Expr) -> Expr:
            return minimum(step, extent - k * step)

        return _Parts(m.cell((extent + step - 1) // step), even)
    sizes, count = m.place(split), m.cell(m.expr(split.shape[0]))

    def size(k: Expr) -> Expr:
        return call("int64_at", sizes.part(k * 8).address)

    total = m.cell(0)
    with each(m, count) as k:
        m.emit(Assert(size(k) >= 0, "split_to_sequence: part {} has the size {}", (k, size(k))))
        m.assign(total, total + size(k))
    message = "split_to_sequence: the parts make up {}, not {}"
    m.emit(Assert(total == extent, message, (total, extent)))
    return _Parts(count, size)


def _one(k: Expr) -> Expr:
    del k
    return const(1)


class _Slab:
    """The memory of a tensor cut along an axis."""

    def __init__(self, m: Memory, value: Value, axis: int) -> None:
        self._m = m
        self._outer = m.expr(product(value.shape[:axis]))
        #: Bytes under one index of the axis.
        self.inner = simplify(m.expr(product(value.shape[axis + 1 :])) * value.dtype.itemsize)

    def copy(self, to: Place, to_extent: Expr, source: Place, extent: Expr, part: Expr) -> None:
        """Copy `part` indices of the axis between tensors of these extents."""
        with each(self._m, self._outer) as o:
            target = part_of(to, self.start(o * to_extent))
            origin = part_of(source, self.start(o * extent))
            self._m.run("copy_memory", target.address, origin.address, self.start(part))

    def start(self, index: Expr) -> Expr:
        """The byte offset of an index of the axis."""
        return simplify(index * self.inner)
