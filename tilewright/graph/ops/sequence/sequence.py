"""Sequences: any number of tensors of one element type, whose sizes and ranks may differ.

An item can be taken out of a sequence whose items have one rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.graph.ir import Array, Value
from tilewright.graph.ir.op import op
from tilewright.graph.ir.types import (
    ANY,
    SequenceType,
    TensorType,
    Type,
    UnknownType,
    fresh_dim,
    known_dim,
)
from tilewright.graph.ir.unify import join_items
from tilewright.ir import DType, const
from tilewright.support.errors import UserError


def element_of(items: Value) -> Type:
    """The type of the elements of a sequence."""
    if isinstance(items.type, SequenceType):
        return items.type.element
    raise UserError(f"{items.name} is no sequence", reason=f"it is {items.type}")


def one_element(items: Value) -> Type:
    """The type of one element: dimensions that differ between elements become fresh ones."""
    element = element_of(items)
    if isinstance(element, UnknownType):
        reason = "they differ" if element.differs else "it is empty, or its type leaves them open"
        raise UserError(f"the ranks of the items of {items.name} are not known", reason=reason)
    if not isinstance(element, TensorType):
        return element
    return element.with_shape(fresh_dim() if d is ANY else d for d in element.shape)


def _at(items: Sequence[Any], position: Array | None, last: int) -> int:
    """A position counted from the front; `last` is used where none is given."""
    if position is None:
        return last
    index = int(position)
    index += len(items) if index < 0 else 0
    if not 0 <= index <= last:
        raise UserError(f"a sequence of {len(items)} has no position {int(position)}")
    return index


@op(structural=True)
def sequence(*xs: Value) -> Type:
    """The sequence of these tensors."""
    if not xs:
        raise UserError("a sequence of nothing has no type", remedy="use sequence_empty")
    element = xs[0].type
    for x in xs[1:]:
        element = join_items(element, x.type)
    return SequenceType(element)


@sequence.reference
def sequence_reference(*xs: Array) -> Any:
    return ([*xs],)


@op(structural=True)
def sequence_empty(*, dtype: DType) -> Type:
    """A sequence without elements."""
    return SequenceType(UnknownType(dtype))


@sequence_empty.reference
def sequence_empty_reference(*, dtype: DType) -> Any:
    del dtype
    return ([],)


@op(structural=True)
def sequence_insert(items: Value, x: Value, position: Value | None = None) -> Type:
    """The sequence with `x` before `position`, or at the end."""
    return SequenceType(join_items(element_of(items), x.type))


@sequence_insert.reference
def sequence_insert_reference(items: list[Any], x: Array, position: Array | None) -> Any:
    at = _at(items, position, len(items))
    return ([*items[:at], x, *items[at:]],)


@op(structural=True)
def sequence_erase(items: Value, position: Value | None = None) -> Type:
    """The sequence without one element, or without the last."""
    element_of(items)
    return items.type


@sequence_erase.reference
def sequence_erase_reference(items: list[Any], position: Array | None) -> Any:
    at = _at(items, position, len(items) - 1)
    return ([*items[:at], *items[at + 1 :]],)


@op(structural=True)
def sequence_at(items: Value, position: Value) -> Type:
    """One element."""
    return one_element(items)


@sequence_at.reference
def sequence_at_reference(items: list[Any], position: Array) -> Any:
    return (items[_at(items, position, len(items) - 1)],)


@sequence_at.item
def sequence_at_item(items: Value, position: Value) -> bool:
    del items, position
    return True


@op(structural=True)
def sequence_length(items: Value) -> Type:
    """How many elements it has."""
    element_of(items)
    return TensorType("i64")


@sequence_length.reference
def sequence_length_reference(items: list[Any]) -> Array:
    return np.asarray(len(items), np.int64)


@op(structural=True)
def concat_from_sequence(items: Value, *, axis: int, new_axis: bool = False) -> Type:
    """All elements joined along an axis, or stacked along a new one."""
    element = one_element(items)
    if not isinstance(element, TensorType):
        raise UserError(f"{items.name} does not hold tensors")
    rank = element.ndim + new_axis
    if not -rank <= axis < rank:
        raise UserError(f"there is no axis {axis}", reason=f"the result has {rank} dimensions")
    shape = list(element.shape)
    if new_axis:
        shape.insert(axis % rank, fresh_dim("count"))
    else:
        shape[axis % rank] = fresh_dim("total")
    return element.with_shape(shape)


@concat_from_sequence.reference
def concat_from_sequence_reference(items: list[Any], *, axis: int, new_axis: bool) -> Array:
    if not items:
        raise UserError("concat_from_sequence: the sequence is empty")
    return np.stack(items, axis) if new_axis else np.concatenate(items, axis)


@op(structural=True)
def split_to_sequence(
    x: Value, split: Value | None = None, *, axis: int = 0, keep_axis: bool = True
) -> Type:
    """`x` cut along an axis: into parts of these sizes, of one size, or into single slices.

    Slices lose the axis unless `keep_axis`; parts keep it.
    """
    if not -x.ndim <= axis < x.ndim:
        raise UserError(f"{x.name} has no axis {axis}", reason=f"it is {x.type}")
    if split is not None and (split.ndim > 1 or split.dtype.name != "int64"):
        raise UserError(
            f"{split} cannot be sizes of parts", reason="they must be i64[n] or i64[()]"
        )
    shape = list(x.shape)
    axis %= x.ndim
    if split is None and not keep_axis:
        del shape[axis]
    else:
        shape[axis] = const(1) if split is None else _part(split)
    return SequenceType(x.tensor.with_shape(shape))


def _part(split: Value) -> Any:
    """The common size of all parts, if there is one."""
    if split.known is None or not split.ndim:
        return ANY
    sizes = {known_dim(s) for s in split.known.ravel()}
    return ANY if len(sizes) != 1 else sizes.pop() or ANY


@split_to_sequence.reference
def split_to_sequence_reference(
    x: Array, split: Array | None, *, axis: int, keep_axis: bool
) -> Any:
    extent = x.shape[axis]
    if split is None:
        parts = np.split(x, extent, axis) if extent else []
        return ([p if keep_axis else p.squeeze(axis) for p in parts],)
    sizes = [int(s) for s in split] if split.ndim else _even(extent, int(split))
    if sum(sizes) != extent or min(sizes, default=0) < 0:
        raise UserError(f"parts of {sizes} do not make up {extent}")
    return (np.split(x, np.cumsum(sizes)[:-1], axis) if sizes else [],)


def _even(extent: int, step: int) -> list[int]:
    if step < 1:
        raise UserError(f"parts of {step} make up nothing")
    return [min(step, extent - start) for start in range(0, extent, step)]
