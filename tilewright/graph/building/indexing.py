"""`value[…]` in the builder: integers, slices, `...` and None."""

from __future__ import annotations

from typing import Any, NamedTuple, cast

from tilewright.graph.ir import Value
from tilewright.graph.ir.attributes import attribute_parts
from tilewright.support.errors import UserError

_TO_THE_END = 2**63 - 1


class _Range(NamedTuple):
    axis: int
    start: Any
    end: Any
    step: int


def apply_index(builder: Any, value: Value, index: Any) -> Value:
    """The part of a tensor, or the item of a tuple, that `index` names."""
    items = _spread(value, attribute_parts(index))
    ranges, dropped, added = _plan(value, items)
    if ranges:
        value = builder.slice(
            value,
            starts=[r.start for r in ranges],
            ends=[r.end for r in ranges],
            axes=[r.axis for r in ranges],
            steps=[r.step for r in ranges],
        )
    value = builder.squeeze(value, axes=dropped) if dropped else value
    return builder.unsqueeze(value, axes=added) if added else value


def _spread(value: Value, items: tuple[Any, ...]) -> list[Any]:
    """`...` as the slices it stands for."""
    taken = sum(i is not None and i is not Ellipsis for i in items)
    if taken > value.ndim:
        raise UserError(f"{value} cannot be indexed by {taken} indices")
    rest = [slice(None)] * (value.ndim - taken)
    at = next((n for n, i in enumerate(items) if i is Ellipsis), len(items))
    return [*items[:at], *rest, *items[at + 1 :]]


def _plan(value: Value, items: list[Any]) -> tuple[list[_Range], list[int], list[int]]:
    ranges: list[_Range] = []
    dropped: list[int] = []
    added: list[int] = []
    axis = position = 0
    for item in items:
        if item is None:
            added.append(position)
            position += 1
            continue
        if isinstance(item, slice):
            position += 1
            ranges += _slice(axis, cast("slice[Any, Any, Any]", item))
        else:
            ranges.append(_one(value, axis, item))
            dropped.append(axis)
        axis += 1
    return ranges, dropped, added


def _slice(axis: int, item: slice[Any, Any, Any]) -> list[_Range]:
    if item == slice(None):
        return []
    step = 1 if item.step is None else item.step
    start = (0 if step > 0 else -1) if item.start is None else item.start
    end = (_TO_THE_END if step > 0 else -_TO_THE_END) if item.stop is None else item.stop
    return [_Range(axis, start, end, step)]


def _one(value: Value, axis: int, item: Any) -> _Range:
    if isinstance(item, Value):
        raise UserError(
            f"{value} cannot be indexed by the tensor {item.name}",
            remedy="use b.gather(x, indices, axis=…)",
        )
    end = _TO_THE_END if isinstance(item, int) and item == -1 else item + 1
    return _Range(axis, item, end, 1)
