"""Transposed convolutions: every pixel contributes to a window of the result.

The products of all pixels with all weights are one contraction; then every element of the result
sums those that contribute to it.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.graph.ir import Array, Value
from tilewright.graph.ir.attributes import Dims, Ints
from tilewright.graph.ir.op import op
from tilewright.graph.ir.types import TensorType, Type
from tilewright.graph.ops.elementwise.elementwise import require_kind, require_same_dtype
from tilewright.graph.ops.neural.conv import require_bias, with_bias
from tilewright.graph.ops.neural.windows import Window, spatial_rank
from tilewright.graph.ops.reduce.reduced import accumulator
from tilewright.graph.sizes.agreement import require_equal, require_multiple
from tilewright.graph.sizes.naturals import simplify_size
from tilewright.ir import DType, Expr, as_expr
from tilewright.support.errors import UserError
from tilewright.tensor import te


@op
def conv_transpose(
    x: Value,
    weight: Value,
    bias: Value | None = None,
    *,
    strides: Ints = (),
    pads: Dims = (),
    dilations: Ints = (),
    groups: int = 1,
    output_pads: Dims = (),
) -> Type:
    """N×C×spatial by weights C×(O/groups)×kernel; `pads` are cut off, `output_pads` put after."""
    require_kind("float", x, weight)
    require_same_dtype(x, weight, *([] if bias is None else [bias]))
    spatial_rank(x.ndim, x.name)
    if weight.ndim != x.ndim:
        raise UserError(f"the image {x} and the weights {weight} differ in rank")
    if groups < 1:
        raise UserError(f"there are {groups} groups of channels")
    channels = require_equal(x.shape[1], weight.shape[0], "channels of image and weights")
    require_multiple(channels, groups, "channels in groups")
    outputs = simplify_size(weight.shape[1] * groups)
    require_bias(bias, outputs)
    window = Window.of(weight.shape[2:], strides, pads, dilations)
    return TensorType(x.dtype, [x.shape[0], outputs, *_spread(window, x.shape[2:], output_pads)])


def _spread(window: Window, extents: Sequence[Any], output_pads: Dims) -> list[Expr]:
    extra = output_pads or (0,) * window.rank
    if len(extra) != window.rank:
        raise UserError(f"there are {len(extra)} output pads for {window.rank} spatial axes")
    return [
        simplify_size(
            (as_expr(e) - 1) * window.strides[n]
            + window.reach(n)
            + extra[n]
            - window.before[n]
            - window.after[n]
        )
        for n, e in enumerate(extents)
    ]


@conv_transpose.reference
def conv_transpose_reference(
    x: Array,
    weight: Array,
    bias: Array | None,
    *,
    strides: Ints,
    pads: Ints,
    dilations: Ints,
    groups: int,
    output_pads: Ints,
) -> Array:
    window = Window.of(weight.shape[2:], strides, pads, dilations).numbers()
    extents = x.shape[2:]
    extra = output_pads or (0,) * window.rank
    starts = [before for before, _ in window.cut]
    ends = [after - e for (_, after), e in zip(window.cut, extra, strict=True)]
    full = [(e - 1) * window.strides[n] + window.reaches[n] for n, e in enumerate(extents)]
    room = [f + max(0, -end) for f, end in zip(full, ends, strict=True)]
    per_group, count = weight.shape[1], x.shape[1] // groups
    result = np.zeros((x.shape[0], per_group * groups, *room))
    for k in itertools.product(*map(range, weight.shape[2:])):
        at = [
            slice(i * d, i * d + (e - 1) * s + 1, s)
            for i, d, e, s in zip(k, window.dilations, extents, window.strides, strict=True)
        ]
        for g in range(groups):
            own = slice(g * count, (g + 1) * count)
            part = np.tensordot(weight[(own, slice(None), *k)].astype("f8"), x[:, own], (0, 1))
            target = (slice(None), slice(g * per_group, (g + 1) * per_group), *at)
            result[target] += np.moveaxis(part, 0, 1)
    cut = [slice(s, f - e) for s, f, e in zip(starts, full, ends, strict=True)]
    result = result[(slice(None), slice(None), *cut)]
    if bias is not None:
        result = result + bias.reshape(-1, *[1] * window.rank)
    return result.astype(x.dtype)


@conv_transpose.compute
def conv_transpose_compute(
    x: te.Tensor,
    weight: te.Tensor,
    bias: te.Tensor | None,
    *,
    strides: Ints,
    pads: Dims,
    dilations: Ints,
    groups: int,
    output_pads: Dims,
    out: TensorType,
) -> te.Tensor:
    del output_pads
    window = Window.of(weight.shape[2:], strides, pads, dilations)
    products = _products(x, weight, window, groups, accumulator(x.dtype))
    total = _collected(products, window, weight.shape[1], groups, x.shape[2:], out.shape)
    return with_bias(total, bias, x.dtype, "conv_transpose_bias")


def _products(
    x: te.Tensor, weight: te.Tensor, window: Window, groups: int, work: DType
) -> te.Tensor:
    """N×groups×(O/groups)×kernel×spatial: every pixel times every weight of its window."""
    count = te.floordiv(x.shape[1], groups) if groups > 1 else x.shape[1]
    rc, rank = te.reduce_axis(count, name="rc"), window.rank

    def element(n: Expr, g: Expr, o: Expr, *i: Expr) -> Any:
        channel = rc.var if groups == 1 else g * count + rc
        pixel, factor = x[(n, channel, *i[rank:])], weight[(channel, o, *i[:rank])]
        return te.sum(pixel.astype(work) * factor.astype(work), axis=rc)

    names = ["n", "g", "o", *(f"k{n}" for n in window.names), *window.names]
    shape = (x.shape[0], groups, weight.shape[1], *window.kernel, *x.shape[2:])
    return te.compute(shape, element, name="products", axis_names=names)


def _collected(
    products: te.Tensor,
    window: Window,
    per_group: Expr,
    groups: int,
    extents: Sequence[Expr],
    shape: Sequence[Expr],
) -> te.Tensor:
    rk = window.axes()

    def element(n: Expr, o: Expr, *i: Expr) -> Any:
        places, reached = list[Expr](), list[Expr]()
        for a, place in enumerate(i):
            step = window.strides[a]
            from_start = place + window.before[a] - rk[a] * window.dilations[a]
            source = from_start if step == 1 else te.floordiv(from_start, step)
            whole = [] if step == 1 else [te.floormod(from_start, step) == te.const(0)]
            reached += [*whole, source >= 0, source < extents[a]]
            places.append(source)
        group = (te.const(0), o) if groups == 1 else _divided(o, per_group)
        value = products[(n, *group, *rk, *places)]
        return te.sum(value, axis=rk, where=te.all_of(*reached))

    names = ["n", "o", *window.names]
    return te.compute(shape, element, name="conv_transpose", axis_names=names)


def _divided(index: Expr, by: Expr) -> tuple[Expr, Expr]:
    return te.floordiv(index, by), te.floormod(index, by)
