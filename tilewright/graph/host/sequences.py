"""Operators on sequences and optionals in a host program: one row of a table for each."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import NamedTuple

from tilewright.graph.host.lists import empty_list, exists, insert, list_from, look_at, position_in
from tilewright.graph.host.memory import Memory, is_tensor
from tilewright.graph.host.pieces import join_items, split_to_items
from tilewright.graph.host.places import BufferPlace, ListPlace
from tilewright.graph.ir import Call, Value
from tilewright.graph.ir.types import OptionalType
from tilewright.ir import Assert, Expr, Store, cast, const


class _Site(NamedTuple):
    """A call, its result, and the values that are not used after it."""

    call: Call
    result: Value
    ending: Collection[Value]

    @property
    def operands(self) -> list[Value]:
        return [a for a in self.call.args if a is not None]


def lower_list_call(m: Memory, expr: Call, result: Value, ending: Collection[Value]) -> None:
    """An operator that makes, changes or reads a list."""
    _LOWERINGS[expr.op.name](m, _Site(expr, result, ending))


# ---- sequences ----------------------------------------------------------------------------------


def _sequence(m: Memory, site: _Site) -> None:
    place = empty_list(m, site.result)
    for k, value in enumerate(site.operands):
        insert(m, place, const(k), value)


def _sequence_insert(m: Memory, site: _Site) -> None:
    items, value, *position = site.operands
    place = list_from(m, site.result, items, site.ending)
    name = site.call.op.name
    at = position_in(m, name, place, position[0], 1) if position else m.cell(place.length)
    insert(m, place, at, value)


def _sequence_erase(m: Memory, site: _Site) -> None:
    items, *position = site.operands
    place = list_from(m, site.result, items, site.ending)
    at = position_in(m, site.call.op.name, place, position[0] if position else None, 0)
    m.run("list_erase", const(place.number), at)


def _sequence_at(m: Memory, site: _Site) -> None:
    (items, position), name = site.operands, site.call.op.name
    at = position_in(m, name, m.list_of(items), position, 0)
    look_at(m, name, site.result, items, at)


def _sequence_length(m: Memory, site: _Site) -> None:
    _store(m, site.result, m.list_of(site.operands[0]).length)


def _store(m: Memory, value: Value, number: Expr) -> None:
    """Store a number in a tensor of one element."""
    buffer = m.buffer(value)
    m.put(value, BufferPlace(buffer))
    m.emit(Store(buffer, (const(0),) * value.ndim, cast(number, value.dtype)))


def _concat(m: Memory, site: _Site) -> None:
    attrs = site.call.attrs
    join_items(m, site.operands[0], site.result, attrs["axis"], stacks=attrs["new_axis"])


def _split(m: Memory, site: _Site) -> None:
    x, split, attrs = site.operands[0], site.call.args[1], site.call.attrs
    drops = split is None and not attrs["keep_axis"]
    split_to_items(m, x, split, site.result, attrs["axis"], drops=drops)


# ---- optionals ----------------------------------------------------------------------------------


def _optional(m: Memory, site: _Site) -> None:
    (value,) = site.operands
    if is_tensor(value):
        _sequence(m, site)
    else:
        m.alias(site.result, value)


def _optional_none(m: Memory, site: _Site) -> None:
    place = m.allocate(site.result)
    assert isinstance(place, ListPlace)
    m.run("list_release", const(place.number))


def _optional_has(m: Memory, site: _Site) -> None:
    (value,) = site.operands
    is_optional = isinstance(value.type, OptionalType)
    _store(m, site.result, exists(m, value) if is_optional else const(True, "bool"))


def _optional_get(m: Memory, site: _Site) -> None:
    (value,) = site.operands
    if isinstance(value.type, OptionalType):
        m.emit(Assert(exists(m, value), "an optional that holds nothing was opened"))
    if is_tensor(value) or not is_tensor(site.result):
        m.alias(site.result, value)
    else:
        look_at(m, site.call.op.name, site.result, value, const(0))


_LOWERINGS: dict[str, Callable[[Memory, _Site], None]] = {
    "sequence": _sequence,
    # Of no operands.
    "sequence_empty": _sequence,
    "sequence_insert": _sequence_insert,
    "sequence_erase": _sequence_erase,
    "sequence_at": _sequence_at,
    "sequence_length": _sequence_length,
    "concat_from_sequence": _concat,
    "split_to_sequence": _split,
    "optional": _optional,
    "optional_none": _optional_none,
    "optional_has": _optional_has,
    "optional_get": _optional_get,
}
