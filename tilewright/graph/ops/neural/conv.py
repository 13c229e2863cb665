"""Convolutions of images N×C×spatial by weights O×(C/groups)×kernel, in any dimensions."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.graph.ir import Array, Value
from tilewright.graph.ir.attributes import Dims, Ints
from tilewright.graph.ir.op import OPS, op
from tilewright.graph.ir.types import TensorType, Type, known_dim
from tilewright.graph.ops.elementwise.elementwise import require_kind, require_same_dtype
from tilewright.graph.ops.neural.windows import Window, spatial_rank
from tilewright.graph.ops.reduce.reduced import accumulator
from tilewright.graph.sizes.agreement import require_equal, require_multiple
from tilewright.graph.sizes.naturals import simplify_size
from tilewright.ir import DType, Expr, const
from tilewright.support.errors import UserError
from tilewright.tensor import te


@op
def conv(
    x: Value,
    weight: Value,
    bias: Value | None = None,
    *,
    strides: Ints = (),
    pads: Dims = (),
    dilations: Ints = (),
    groups: int = 1,
    dtype: DType | None = None,
    fill: int = 0,
) -> Type:
    """The convolution of an image; each of the groups of channels by itself. See `windows`.

    The result, and the bias, are in `dtype`, to which factors are converted first, or in theirs.
    Integers are padded with `fill`: the zero point, where they are quantized."""
    require_kind("number", x, weight)
    if dtype is None:
        require_same_dtype(x, weight)
    require_fill(x, fill)
    require_bias(bias, weight.shape[0])
    require_bias_type(bias, dtype or x.dtype)
    return TensorType(dtype or x.dtype, conv_shape(x, weight, strides, pads, dilations, groups))


@conv.reference
def conv_reference(
    x: Array,
    weight: Array,
    bias: Array | None,
    *,
    strides: Ints,
    pads: Ints,
    dilations: Ints,
    groups: int,
    dtype: DType | None = None,
    fill: int = 0,
) -> Array:
    result = x.dtype if dtype is None else dtype.numpy
    work = np.float64 if DType.of(result).is_float else result
    window = Window.of(weight.shape[2:], strides, pads, dilations)
    total = convolved_reference(x.astype(work), weight.astype(work), window, groups, fill)
    return (total if bias is None else total + _per_channel(bias, x.ndim)).astype(result)


@conv.compute
def conv_compute(
    x: te.Tensor,
    weight: te.Tensor,
    bias: te.Tensor | None,
    *,
    strides: Ints,
    pads: Dims,
    dilations: Ints,
    groups: int,
    dtype: DType | None,
    fill: int,
) -> te.Tensor:
    result = dtype or x.dtype
    work = accumulator(result)
    window = Window.of(weight.shape[2:], strides, pads, dilations)
    total = convolved(window.padded(x, fill), weight, window, groups, work)
    return with_bias(total, bias, result, "conv_bias")


#: Names by the number of spatial axes.
for _rank in (1, 2, 3):
    OPS[f"conv{_rank}d"] = conv


# ---- what other operators share -----------------------------------------------------------------


def conv_shape(
    x: Value, weight: Value, strides: Ints, pads: Dims, dilations: Ints, groups: int
) -> list[Any]:
    """The shape of a convolution's result."""
    rank = spatial_rank(x.ndim, x.name)
    if weight.ndim != x.ndim:
        raise UserError(f"the image {x} and the weights {weight} differ in rank")
    window = Window.of(weight.shape[2:], strides, pads, dilations)
    _check_groups(x.shape[1], weight.shape[1], weight.shape[0], groups)
    assert window.rank == rank
    return [x.shape[0], weight.shape[0], *window.places(x.shape[2:])]


def _check_groups(channels: Expr, inputs: Expr, outputs: Expr, groups: int) -> None:
    if groups < 1:
        raise UserError(f"there are {groups} groups of channels")
    text = f"the channels of the image and of the weights, in {groups} groups,"
    require_equal(channels, inputs * groups, text)
    require_multiple(outputs, groups, "output channels in groups")


def require_fill(x: Value, fill: int) -> None:
    """Refuse a padding value that does not fit the image's type."""
    if fill and not (x.dtype.is_integer and x.dtype.min_value <= fill <= x.dtype.max_value):
        raise UserError(f"{x} is padded with {fill}", reason="only integers of its type can be")


def require_bias_type(bias: Value | None, result: DType) -> None:
    """Refuse a bias of another type than the result."""
    if bias is not None and bias.dtype is not result:
        raise UserError(f"the bias is {bias}", reason=f"the result is in {result}")


def require_bias(bias: Value | None, channels: Expr) -> None:
    """Refuse a bias without exactly one element for each channel."""
    if bias is None:
        return
    if bias.ndim != 1:
        raise UserError(f"the bias is {bias}", reason="it is not one number for each channel")
    require_equal(bias.shape[0], channels, "the bias and the output channels")


def with_bias(
    total: te.Tensor, bias: te.Tensor | None, result: DType, name: str, channel: int = 1
) -> te.Tensor:
    """`total` plus a number for each index of its axis `channel`, in the type of the result."""
    if bias is None and total.dtype is result:
        return total

    def element(*i: Expr) -> Expr:
        value: Expr = total[i]
        value = value if bias is None else value + bias[i[channel]].astype(total.dtype)
        return te.cast(value, result)

    return te.compute(total.shape, element, name=name)


def convolved(
    image: te.Tensor, weight: te.Tensor, window: Window, groups: int, work: DType
) -> te.Tensor:
    """The sum of products for an image that is already padded."""
    places = Window(window.kernel, window.strides, window.dilations, *(((0,) * window.rank,) * 2))
    spatial = places.places(image.shape[2:])
    shape = (image.shape[0], weight.shape[0], *spatial)
    if groups == 1:
        return _ungrouped(image, weight, window, shape, work)
    if known_dim(weight.shape[1]) == 1:
        return _depthwise(image, weight, window, shape, groups, work)
    return _grouped(image, weight, window, shape, groups, work)


def _ungrouped(
    image: te.Tensor, weight: te.Tensor, window: Window, shape: tuple[Any, ...], work: DType
) -> te.Tensor:
    rc, (taps, axes) = te.reduce_axis(weight.shape[1], name="rc"), window.taps()

    def element(*i: Expr) -> Any:
        pixel = image[(i[0], rc, *window.at(i[2:], taps))]
        factor = weight[(i[1], rc, *taps)]
        return te.sum(pixel.astype(work) * factor.astype(work), axis=[rc, *axes])

    return te.compute(shape, element, name="conv", axis_names=["n", "o", *window.names])


def _depthwise(
    image: te.Tensor,
    weight: te.Tensor,
    window: Window,
    shape: tuple[Any, ...],
    groups: int,
    work: DType,
) -> te.Tensor:
    """Each channel separately: nothing is summed over channels."""
    rk = window.axes()
    outputs = known_dim(weight.shape[0])

    def element(*i: Expr) -> Any:
        channel = i[1] if outputs == groups else te.floordiv(i[1] * groups, weight.shape[0])
        pixel = image[(i[0], channel, *window.at(i[2:], rk))]
        return te.sum(pixel.astype(work) * weight[(i[1], 0, *rk)].astype(work), axis=rk)

    return te.compute(shape, element, name="depthwise", axis_names=["n", "o", *window.names])


def _grouped(
    image: te.Tensor,
    weight: te.Tensor,
    window: Window,
    shape: tuple[Any, ...],
    groups: int,
    work: DType,
) -> te.Tensor:
    """The groups as a separate dimension, so that each is a plain contraction."""
    per_group, inputs = simplify_size(te.floordiv(shape[1], groups)), weight.shape[1]
    rc, (taps, axes) = te.reduce_axis(inputs, name="rc"), window.taps()

    def element(n: Expr, g: Expr, o: Expr, *i: Expr) -> Any:
        pixel = image[(n, g * inputs + rc, *window.at(i, taps))]
        factor = weight[(g * per_group + o, rc, *taps)]
        return te.sum(pixel.astype(work) * factor.astype(work), axis=[rc, *axes])

    split = te.compute(
        (shape[0], groups, per_group, *shape[2:]),
        element,
        name="grouped",
        axis_names=["n", "g", "o", *window.names],
    )

    def joined(n: Expr, o: Expr, *i: Expr) -> Expr:
        return split[(n, te.floordiv(o, per_group), te.floormod(o, per_group), *i)]

    return te.compute(shape, joined, name="conv", axis_names=["n", "o", *window.names])


def convolved_reference(
    x: Array, weight: Array, window: Window, groups: int, fill: int = 0
) -> Array:
    """The convolution by NumPy: one product for each element of the kernel."""
    window = window.numbers()
    places = [int(known_dim(p) or 0) for p in window.places([const(n) for n in x.shape[2:]])]
    image = window.with_padding(x, fill, places)
    count, per_group = x.shape[1] // groups, weight.shape[0] // groups
    total = np.zeros((x.shape[0], weight.shape[0], *places), x.dtype)
    for k, patch in window.patches(image, places):
        for g in range(groups):
            own = slice(g * per_group, (g + 1) * per_group)
            part = patch[:, g * count : (g + 1) * count]
            factor = weight[(own, slice(None), *k)]
            total[:, own] += np.moveaxis(np.tensordot(factor, part, (1, 1)), 0, 1)
    return total


def _per_channel(bias: Array, rank: int) -> Array:
    return bias.reshape(-1, *[1] * (rank - 2))
