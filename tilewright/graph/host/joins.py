"""Concats in a host program: operands are computed inside the result, or else copied there."""

from __future__ import annotations

from tilewright.graph.fusion.sharing import Joins, parts_of
from tilewright.graph.host.memory import Memory, part_of
from tilewright.graph.host.places import BufferPlace, Place
from tilewright.graph.ir import Binding, Value
from tilewright.ir import const


def place_parts(m: Memory, joins: Joins) -> dict[Value, Place]:
    """Room for the results of concats, and the place in it where each part is computed."""
    places: dict[Value, Place] = {}
    for value, spot in joins.spots.items():
        if value in m.sinks or _is_block(m, spot.whole):
            continue
        places[value] = _part(_room(m, spot.whole), spot.offset, value)
    return places


def _is_block(m: Memory, whole: Value) -> bool:
    """Whether it must end up in a heap block that is not allocated yet."""
    sink = m.sinks.get(whole)
    return sink is not None and sink.slot is not None


def _room(m: Memory, whole: Value) -> Place:
    if not m.has_place(whole):
        m.put(whole, m.sinks.get(whole) or BufferPlace(m.buffer(whole)))
    return m.place(whole)


def copy_parts(m: Memory, binding: Binding, joins: Joins) -> None:
    """Finish a concat: copy the parts that were not computed inside the result."""
    result, view = binding.outputs[0], joins.views.get(binding.outputs[0])
    if view is not None and m.has_place(view.whole):
        place = _part(m.place(view.whole), view.offset, result)
        if all(_is_at(m, v, _part(place, at, v)) for v, at in parts_of(binding)):
            m.put(result, place)
            return
    if not m.has_place(result):
        m.allocate(result)
    for value, at in parts_of(binding):
        target = _part(m.place(result), at, value)
        if not _is_at(m, value, target):
            m.run("copy_memory", target.address, m.place(value).address, m.bytes_of(value))


def _part(place: Place, at: int, value: Value) -> Place:
    return part_of(place, const(at * value.dtype.itemsize))


def _is_at(m: Memory, value: Value, place: Place) -> bool:
    return m.place(value).address is place.address
