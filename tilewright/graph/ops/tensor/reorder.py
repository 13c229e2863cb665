"""Elements in another order along an axis: reversed or rolled."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.graph.ir import Array, Value
from tilewright.graph.ir.attributes import Dims, Ints
from tilewright.graph.ir.op import op
from tilewright.graph.ir.types import Type
from tilewright.graph.ops.elementwise.elementwise import require_kind
from tilewright.graph.sizes.agreement import require_equal
from tilewright.graph.sizes.axes import axes_of, axis_of
from tilewright.ir import Expr, as_expr
from tilewright.support.errors import UserError
from tilewright.tensor import te


@op
def flip(x: Value, *, axes: Ints | None = None) -> Type:
    """`x` reversed along these axes, or along all."""
    axes_of(axes, x.ndim)
    return x.type


@flip.reference
def flip_reference(x: Array, *, axes: Ints | None) -> Array:
    return np.flip(x, axes).copy()


@flip.compute
def flip_compute(x: te.Tensor, *, axes: Ints | None) -> te.Tensor:
    reversed_ = axes_of(axes, x.ndim)

    def element(*i: Expr) -> Expr:
        return x[tuple(x.shape[n] - 1 - k if n in reversed_ else k for n, k in enumerate(i))]

    return te.compute(x.shape, element, name="flip")


@op
def roll(x: Value, *, shifts: Dims, axes: Ints) -> Type:
    """`x` moved on by so many places along each of the axes; what leaves at the end comes first."""
    if len(shifts) != len(axes_of(axes, x.ndim)):
        raise UserError(f"{len(shifts)} shifts are given for {len(axes)} axes")
    return x.type


@roll.reference
def roll_reference(x: Array, *, shifts: Ints, axes: Ints) -> Array:
    return np.roll(x, shifts, axes)


@roll.compute
def roll_compute(x: te.Tensor, *, shifts: Dims, axes: Ints) -> te.Tensor:
    by = {a: as_expr(s) for a, s in zip(axes_of(axes, x.ndim), shifts, strict=True)}

    def place(n: int, index: Expr) -> Expr:
        return (index - by[n]) % x.shape[n] if n in by else index

    return te.compute(
        x.shape, lambda *i: x[tuple(place(n, k) for n, k in enumerate(i))], name="roll"
    )


@op
def reverse_sequence(x: Value, lengths: Value, *, batch_axis: int = 1, time_axis: int = 0) -> Type:
    """The first lengths[b] elements of each batch in reverse along the time; the rest as it is."""
    require_kind("integer", lengths)
    if axis_of(batch_axis, x.ndim) == axis_of(time_axis, x.ndim) or lengths.ndim != 1:
        raise UserError(f"{x} has no sequences of {lengths} along axes {batch_axis}, {time_axis}")
    require_equal(lengths.shape[0], x.shape[batch_axis], "lengths and batches")
    return x.type


@reverse_sequence.reference
def reverse_sequence_reference(
    x: Array, lengths: Array, *, batch_axis: int, time_axis: int
) -> Array:
    out = x.copy()
    source, target = (np.moveaxis(a, (batch_axis, time_axis), (0, 1)) for a in (x, out))
    for batch, length in enumerate(lengths.tolist()):
        if not 0 <= length <= source.shape[1]:
            raise UserError(f"a sequence of {length} elements is longer than {source.shape[1]}")
        target[batch, :length] = source[batch, :length][::-1]
    return out


@reverse_sequence.compute
def reverse_sequence_compute(
    x: te.Tensor, lengths: te.Tensor, *, batch_axis: int, time_axis: int
) -> Any:
    batch, time = axis_of(batch_axis, x.ndim), axis_of(time_axis, x.ndim)

    def element(*i: Expr) -> Expr:
        length = te.cast(lengths[i[batch]], "int64")
        place = te.if_then_else(i[time] < length, length - 1 - i[time], i[time])
        return x[(*i[:time], place, *i[time + 1 :])]

    return te.compute(x.shape, element, name="reverse_sequence")
