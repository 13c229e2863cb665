"""Deformable convolution: every element of the window is read at an offset of its own."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.graph.ir import Array, Value
from tilewright.graph.ir.attributes import Dims, Ints
from tilewright.graph.ir.op import op
from tilewright.graph.ir.types import TensorType, Type, product
from tilewright.graph.ops.elementwise.elementwise import require_kind, require_same_dtype
from tilewright.graph.ops.neural.conv import conv_shape, require_bias, with_bias
from tilewright.graph.ops.neural.windows import Window
from tilewright.graph.ops.reduce.reduced import accumulator
from tilewright.graph.sizes.agreement import require_multiple, require_same_shape
from tilewright.ir import DType, Expr, as_expr
from tilewright.support.errors import UserError
from tilewright.tensor import te


@op
def deform_conv(
    x: Value,
    weight: Value,
    offset: Value,
    bias: Value | None = None,
    mask: Value | None = None,
    *,
    strides: Ints = (),
    pads: Dims = (),
    dilations: Ints = (),
    groups: int = 1,
    offset_groups: int = 1,
) -> Type:
    """`conv` whose windows are read, by linear interpolation, where `offset` says.

    offset: N×(offset_groups · kernel · axes)×places, one for each element of the kernel and spatial
    axis; mask: N×(offset_groups · kernel)×places, what each element is multiplied by.
    """
    given = [v for v in (bias, mask) if v is not None]
    require_kind("float", x)
    require_same_dtype(x, weight, offset, *given)
    require_bias(bias, weight.shape[0])
    shape = conv_shape(x, weight, strides, pads, dilations, groups)
    if offset_groups < 1:
        raise UserError(f"there are {offset_groups} groups of offsets")
    require_multiple(x.shape[1], offset_groups, "channels in groups of offsets")
    count = product(weight.shape[2:]) * offset_groups
    wanted = [shape[0], count * (x.ndim - 2), *shape[2:]]
    require_same_shape(offset.shape, wanted, "offsets and N×(groups·kernel·axes)×places")
    if mask is not None:
        masked = [shape[0], count, *shape[2:]]
        require_same_shape(mask.shape, masked, "the mask and N×(groups·kernel)×places")
    return TensorType(x.dtype, shape)


# ---- reference ----------------------------------------------------------------------------------


@deform_conv.reference
def deform_conv_reference(
    x: Array,
    weight: Array,
    offset: Array,
    bias: Array | None,
    mask: Array | None,
    *,
    strides: Ints,
    pads: Ints,
    dilations: Ints,
    groups: int,
    offset_groups: int,
) -> Array:
    window = Window.of(weight.shape[2:], strides, pads, dilations).numbers()
    kernel, rank, places = weight.shape[2:], x.ndim - 2, offset.shape[2:]
    batch, channels = x.shape[:2]
    moves = offset.reshape(batch, offset_groups, *kernel, rank, *places).astype(np.float64)
    factors = np.ones((batch, offset_groups, *kernel, *places))
    if mask is not None:
        factors = mask.reshape(factors.shape).astype(np.float64)
    total = np.zeros((batch, weight.shape[0], *places))
    inputs, outputs, shared = weight.shape[1], weight.shape[0] // groups, channels // offset_groups
    for k in itertools.product(*map(range, kernel)):
        for n, g in itertools.product(range(batch), range(offset_groups)):
            at = [_places(window, a, k, places) + moves[(n, g, *k, a)] for a in range(rank)]
            for c in range(g * shared, (g + 1) * shared):
                values = _sampled(x[n, c].astype(np.float64), at) * factors[(n, g, *k)]
                for o in range(outputs):
                    out = c // inputs * outputs + o
                    total[n, out] += values * weight[(out, c % inputs, *k)]
    total = total if bias is None else total + bias.reshape(-1, *[1] * rank)
    return total.astype(x.dtype)


def _places(window: Window, axis: int, k: Sequence[int], places: Sequence[int]) -> Array:
    """The position of a window's element along one axis, before the offset is added."""
    steps: Array = np.arange(places[axis]) * window.strides[axis]
    start = k[axis] * window.dilations[axis] - window.cut[axis][0]
    return (steps + start).reshape([-1 if b == axis else 1 for b in range(window.rank)])


def _sampled(image: Array, at: Sequence[Array]) -> Array:
    """An image sampled between its elements, with zeros around it."""
    lows = [np.floor(a).astype(np.int64) for a in at]
    total = np.zeros(np.broadcast_shapes(*(a.shape for a in at)))
    for corner in itertools.product((0, 1), repeat=image.ndim):
        index = [low + c for low, c in zip(lows, corner, strict=True)]
        share: Any = 1.0
        inside: Any = True
        for a, (position, place) in enumerate(zip(at, index, strict=True)):
            share = share * (1 - np.abs(position - place))
            inside = inside & (place >= 0) & (place < image.shape[a])
        safe = [np.clip(i, 0, max(0, e - 1)) for i, e in zip(index, image.shape, strict=True)]
        total += np.where(inside, image[tuple(safe)] * share, 0)
    return total


# ---- compute ------------------------------------------------------------------------------------


@deform_conv.compute
def deform_conv_compute(
    x: te.Tensor,
    weight: te.Tensor,
    offset: te.Tensor,
    bias: te.Tensor | None,
    mask: te.Tensor | None,
    *,
    strides: Ints,
    pads: Dims,
    dilations: Ints,
    groups: int,
    offset_groups: int,
    out: TensorType,
) -> te.Tensor:
    window = Window.of(weight.shape[2:], strides, pads, dilations)
    columns = _columns(x, offset, mask, window, offset_groups, out.shape[2:])
    total = _contracted(columns, weight, window, groups, out.shape)
    return with_bias(total, bias, x.dtype, "deform_conv_bias")


def _columns(
    x: te.Tensor,
    offset: te.Tensor,
    mask: te.Tensor | None,
    window: Window,
    offset_groups: int,
    places: Sequence[Expr],
) -> te.Tensor:
    """N×C×kernel×positions: the sample for each element of the window at each position."""
    rank, work = window.rank, accumulator(x.dtype)

    def element(n: Expr, c: Expr, *i: Expr) -> Expr:
        k, at = i[:rank], i[rank:]
        entry = _entry(window, offset_groups, x.shape[1], c, k)
        positions = [
            te.cast(offset[(n, entry * rank + a, *at)], work)
            + te.cast(place - window.before[a], work)
            for a, place in enumerate(window.at(at, k))
        ]
        value = _interpolated(x, n, c, positions)
        return value if mask is None else value * te.cast(mask[(n, entry, *at)], work)

    shape = (x.shape[0], x.shape[1], *window.kernel, *places)
    return te.compute(shape, element, name="columns")


def _entry(window: Window, groups: int, channels: Expr, c: Expr, k: Sequence[Expr]) -> Expr:
    """The offset of a channel, counted over groups and elements of the kernel."""
    position = te.const(0) if groups == 1 else te.floordiv(c * groups, channels)
    for extent, index in zip(window.kernel, k, strict=True):
        position = position * as_expr(extent) + index
    return position


def _interpolated(x: te.Tensor, n: Expr, c: Expr, positions: Sequence[Expr]) -> Expr:
    work = positions[0].dtype
    zero = te.const(0, work)
    lows = [te.floor(p) for p in positions]
    total: Expr = zero
    for corner in itertools.product((0, 1), repeat=len(positions)):
        share: Expr = te.const(1, work)
        index, inside = list[Expr](), list[Expr]()
        for a, (position, low) in enumerate(zip(positions, lows, strict=True)):
            upper = position - low
            share = share * (upper if corner[a] else 1 - upper)
            place = te.cast(low, "int64") + corner[a]
            index.append(place)
            inside += [place >= 0, place < x.shape[a + 2]]
        value = te.cast(x[(n, c, *index)], work) * share
        total = total + te.if_then_else(te.all_of(*inside), value, zero)
    return total


def _contracted(
    columns: te.Tensor, weight: te.Tensor, window: Window, groups: int, shape: Sequence[Expr]
) -> te.Tensor:
    work: DType = columns.dtype
    inputs = weight.shape[1]
    rc, rk = te.reduce_axis(inputs, name="rc"), window.axes()

    def element(n: Expr, o: Expr, *i: Expr) -> Any:
        start = te.floordiv(o * groups, shape[1]) * inputs
        channel = rc.var if groups == 1 else start + rc
        factor = te.cast(weight[(o, rc, *rk)], work)
        return te.sum(columns[(n, channel, *rk, *i)] * factor, axis=[rc, *rk])

    names = ["n", "o", *window.names]
    return te.compute(shape, element, name="deform_conv", axis_names=names)
