"""storage_align(block, buffer, axis, factor, offset)"""

from __future__ import annotations

from tilewright.arith import simplify
from tilewright.ir import Block, Buffer, Expr
from tilewright.schedule.cursor import Tree
from tilewright.schedule.edit import Edit
from tilewright.schedule.error import Fault, require
from tilewright.schedule.facts.block_facts import (
    buffer_is_intermediate,
)
from tilewright.schedule.writing import BufferLike, buffer_touched, with_buffer_changed


def storage_align(
    tree: Tree, block: Block, buffer: BufferLike, axis: int, factor: int, offset: int = 0
) -> Edit:
    """Pad an intermediate buffer so that the stride of an axis is k * factor + offset.

    T = alloc(f32[8, 30])      -->      T = alloc(f32[8, 30], strides=[32, 1])
    """
    check(tree, block, buffer, axis, factor, offset)
    old = buffer_touched(block, buffer)
    strides = _strides(old, axis % old.ndim, factor, offset)
    return Edit(with_buffer_changed(tree.function, old, old.with_(strides=strides)))


def check(
    tree: Tree, block: Block, buffer: BufferLike, axis: int, factor: int, offset: int = 0
) -> None:
    old = buffer_touched(block, buffer)
    what = f"cannot align axis {axis} of {old.name} to {factor}, offset {offset}"
    require(
        tree,
        what,
        buffer_is_intermediate(tree, old),
        _axis_has_a_stride(old, axis),
        _numbers_are_sound(factor, offset),
    )


def _axis_has_a_stride(buffer: Buffer, axis: int) -> Fault | None:
    remedy = f"choose one of the first {buffer.ndim - 1} axes"
    if not -buffer.ndim <= axis < buffer.ndim:
        return Fault(f"{buffer.name} has {buffer.ndim} axes", remedy)
    if axis % buffer.ndim == buffer.ndim - 1:
        return Fault("elements of the last axis lie side by side", remedy)
    return None


def _numbers_are_sound(factor: int, offset: int) -> Fault | None:
    if factor < 1:
        return Fault(f"{factor} is no factor", "give a whole number from 1 up")
    if not 0 <= offset < factor:
        return Fault(f"the offset {offset} is not below the factor", "keep it in 0 … factor - 1")
    return None


def _strides(buffer: Buffer, axis: int, factor: int, offset: int) -> tuple[Expr, ...]:
    """The present strides, with those of `axis` and of all outer axes enlarged."""
    strides = list(buffer.stride_exprs())
    strides[axis] = simplify((strides[axis] - offset + (factor - 1)) // factor * factor + offset)
    for outer in reversed(range(axis)):
        strides[outer] = simplify(strides[outer + 1] * buffer.shape[outer + 1])
    return tuple(strides)
