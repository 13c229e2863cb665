"""Convolutions of images whose channels are blocked; `conv_layouts` computes `conv` by them.

    conv_blocked         N×(C/b)×spatial×b by weights (O/c)×(I/b)×kernel×b×c
    conv_into_blocked    N×C×spatial by weights (O/c)×C×kernel×c: for the first one, of few channels
    depthwise_blocked    N×(C/b)×spatial×b by weights (C/b)×kernel×b

All give N×(O/c)×spatial×c. A bias has the shape (O/c)×c. The weights are packed at compile time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.graph.ir import Array, Value
from tilewright.graph.ir.attributes import Dims, Ints
from tilewright.graph.ir.op import op
from tilewright.graph.ir.types import TensorType, Type, known_dim
from tilewright.graph.ops.elementwise.elementwise import require_kind, require_same_dtype
from tilewright.graph.ops.forms.blocked import blocked_array, unblocked_array
from tilewright.graph.ops.neural.conv import convolved_reference, require_bias_type, require_fill
from tilewright.graph.ops.neural.windows import Window
from tilewright.graph.ops.reduce.reduced import accumulator
from tilewright.graph.sizes.agreement import require_equal
from tilewright.ir import DType, Expr
from tilewright.support.errors import UserError
from tilewright.tensor import te

# ---- channels in blocks on both sides -----------------------------------------------------------


@op
def conv_blocked(
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
    """The convolution of an image with blocked channels; groups are whole blocks. The result, and
    the bias, are in `dtype`, or in the type of the image; `fill` is as for `conv`."""
    _check(x, weight, bias, weight.ndim - 4, x.ndim - 3, dtype)
    require_fill(x, fill)
    blocks, inputs, outputs = (known_dim(d) for d in (x.shape[1], weight.shape[1], weight.shape[0]))
    if blocks != (inputs or 0) * groups or (outputs or 0) % groups:
        raise UserError(f"{groups} groups of {blocks} blocks of channels do not fit {weight}")
    if x.shape[-1] is not weight.shape[-2]:
        raise UserError(f"{x} and {weight} have different blocks")
    window = Window.of(weight.shape[2:-2], strides, pads, dilations)
    return _result(x, window, x.shape[2:-1], weight, dtype)


@conv_blocked.reference
def conv_blocked_reference(
    x: Array,
    weight: Array,
    bias: Array | None,
    *,
    strides: Ints,
    pads: Ints,
    dilations: Ints,
    groups: int,
    dtype: DType | None,
    fill: int,
) -> Array:
    plain = unblocked_array(unblocked_array(weight, 0), 1)
    window = Window.of(plain.shape[2:], strides, pads, dilations)
    image, block = unblocked_array(x, 1), weight.shape[-1]
    return _by_numpy(image, plain, bias, window, groups, block, dtype, fill)


@conv_blocked.compute
def conv_blocked_compute(
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
    out: TensorType,
) -> te.Tensor:
    del dtype
    window = Window.of(weight.shape[2:-2], strides, pads, dilations)
    image, work = window.padded(x, fill), accumulator(out.dtype)
    ro, ri = (te.reduce_axis(weight.shape[k], name=n) for k, n in ((1, "ro"), (-2, "ri")))
    # Instructions for bytes read rows of pixels of any length in place: for a 1×1 kernel, all
    # pixels of an image are one dimension.
    taps, rk = window.taps() if x.dtype.is_integer else (window.axes(),) * 2
    inputs, outputs = (known_dim(weight.shape[k]) or 1 for k in (1, 0))
    per_group = outputs // groups

    def product(n: Expr, first: Any, o: Any, i: Sequence[Expr]) -> Any:
        pixel = image[(n, first, *window.at(i[:-1], taps), ri)]
        factor = weight[(o, ro, *taps, ri, i[-1])]
        return te.sum(pixel.astype(work) * factor.astype(work), axis=[ro, *rk, ri])

    names = [*window.names, "oi"]
    if groups == 1 or (inputs, per_group) == (1, 1):

        def single(n: Expr, o: Expr, *i: Expr) -> Any:
            return product(n, ro if groups == 1 else o, o, i)

        total = te.compute(out.shape, single, name="conv", axis_names=["n", "o", *names])
        return _with_bias(total, bias, out.dtype)

    def split(n: Expr, g: Expr, o: Expr, *i: Expr) -> Any:
        return product(n, g * inputs + ro, g * per_group + o, i)

    shape = (out.shape[0], groups, per_group, *out.shape[2:])
    parts = te.compute(shape, split, name="grouped", axis_names=["n", "g", "o", *names])

    def joined(n: Expr, o: Expr, *i: Expr) -> Expr:
        return parts[(n, te.floordiv(o, per_group), te.floormod(o, per_group), *i)]

    total = te.compute(out.shape, joined, name="conv", axis_names=["n", "o", *names])
    return _with_bias(total, bias, out.dtype)


# ---- from a plain image -------------------------------------------------------------------------


@op
def conv_into_blocked(
    x: Value,
    weight: Value,
    bias: Value | None = None,
    *,
    strides: Ints = (),
    pads: Dims = (),
    dilations: Ints = (),
) -> Type:
    """The convolution of a plain image that gives one with blocked channels."""
    _check(x, weight, bias, weight.ndim - 3, x.ndim - 2)
    if x.shape[1] is not weight.shape[1]:
        raise UserError(f"{x} and {weight} have different channels")
    window = Window.of(weight.shape[2:-1], strides, pads, dilations)
    return _result(x, window, x.shape[2:], weight)


@conv_into_blocked.reference
def conv_into_blocked_reference(
    x: Array, weight: Array, bias: Array | None, *, strides: Ints, pads: Ints, dilations: Ints
) -> Array:
    plain = unblocked_array(weight, 0)
    window = Window.of(plain.shape[2:], strides, pads, dilations)
    return _by_numpy(x, plain, bias, window, 1, weight.shape[-1])


@conv_into_blocked.compute
def conv_into_blocked_compute(
    x: te.Tensor,
    weight: te.Tensor,
    bias: te.Tensor | None,
    *,
    strides: Ints,
    pads: Dims,
    dilations: Ints,
    out: TensorType,
) -> te.Tensor:
    window = Window.of(weight.shape[2:-1], strides, pads, dilations)
    image, work = window.padded(x), accumulator(x.dtype)
    rc, rk = te.reduce_axis(x.shape[1], name="rc"), window.axes()

    def element(n: Expr, o: Expr, *i: Expr) -> Any:
        pixel = image[(n, rc, *window.at(i[:-1], rk))]
        factor = weight[(o, rc, *rk, i[-1])]
        return te.sum(pixel.astype(work) * factor.astype(work), axis=[rc, *rk])

    names = ["n", "o", *window.names, "oi"]
    return _with_bias(te.compute(out.shape, element, name="conv", axis_names=names), bias, x.dtype)


# ---- every channel by itself --------------------------------------------------------------------


@op
def depthwise_blocked(
    x: Value,
    weight: Value,
    bias: Value | None = None,
    *,
    strides: Ints = (),
    pads: Dims = (),
    dilations: Ints = (),
    dtype: DType | None = None,
    fill: int = 0,
) -> Type:
    """The convolution of every channel by itself; `dtype` and `fill` are as for `conv_blocked`."""
    _check(x, weight, bias, weight.ndim - 2, x.ndim - 3, dtype)
    require_fill(x, fill)
    if x.shape[1] is not weight.shape[0] or x.shape[-1] is not weight.shape[-1]:
        raise UserError(f"{x} and {weight} have different channels")
    window = Window.of(weight.shape[1:-1], strides, pads, dilations)
    return _result(x, window, x.shape[2:-1], weight, dtype)


@depthwise_blocked.reference
def depthwise_blocked_reference(
    x: Array,
    weight: Array,
    bias: Array | None,
    *,
    strides: Ints,
    pads: Ints,
    dilations: Ints,
    dtype: DType | None,
    fill: int,
) -> Array:
    plain = unblocked_array(weight, 0)[:, None]
    window = Window.of(plain.shape[2:], strides, pads, dilations)
    image = unblocked_array(x, 1)
    return _by_numpy(image, plain, bias, window, image.shape[1], weight.shape[-1], dtype, fill)


@depthwise_blocked.compute
def depthwise_blocked_compute(
    x: te.Tensor,
    weight: te.Tensor,
    bias: te.Tensor | None,
    *,
    strides: Ints,
    pads: Dims,
    dilations: Ints,
    dtype: DType | None,
    fill: int,
    out: TensorType,
) -> te.Tensor:
    del dtype
    window = Window.of(weight.shape[1:-1], strides, pads, dilations)
    image, work, rk = window.padded(x, fill), accumulator(out.dtype), window.axes()

    def element(n: Expr, o: Expr, *i: Expr) -> Any:
        pixel = image[(n, o, *window.at(i[:-1], rk), i[-1])]
        return te.sum(pixel.astype(work) * weight[(o, *rk, i[-1])].astype(work), axis=rk)

    names = ["n", "o", *window.names, "oi"]
    total = te.compute(out.shape, element, name="depthwise", axis_names=names)
    return _with_bias(total, bias, out.dtype)


# ---- what they share ----------------------------------------------------------------------------


def _check(
    x: Value,
    weight: Value,
    bias: Value | None,
    kernel: int,
    spatial: int,
    dtype: DType | None = None,
) -> None:
    require_kind("number", x, weight)
    if dtype is None:
        require_same_dtype(x, weight)
    require_bias_type(bias, dtype or x.dtype)
    if kernel != spatial or spatial < 1:
        raise UserError(f"the image {x} and the weights {weight} do not fit")
    if bias is not None:
        if bias.ndim != 2 or bias.shape[1] is not weight.shape[-1]:
            raise UserError(f"the bias is {bias}, the weights are {weight}")
        require_equal(bias.shape[0], weight.shape[0], "the blocks of the bias and of the weights")


def _result(
    x: Value,
    window: Window,
    spatial: Sequence[Expr],
    weight: Value,
    dtype: DType | None = None,
) -> Type:
    shape = [x.shape[0], weight.shape[0], *window.places(spatial), weight.shape[-1]]
    return TensorType(dtype or x.dtype, shape)


def _by_numpy(
    x: Array,
    weight: Array,
    bias: Array | None,
    window: Window,
    groups: int,
    block: int,
    dtype: DType | None = None,
    fill: int = 0,
) -> Array:
    # Sums of bytes are exact in float64 too.
    total = convolved_reference(x.astype("f8"), weight.astype("f8"), window, groups, fill)
    if bias is not None:
        total = total + bias.reshape(-1, *[1] * window.rank)
    result = x.dtype if dtype is None else dtype.numpy
    return blocked_array(total.astype(result), 1, block)


def _with_bias(total: te.Tensor, bias: te.Tensor | None, result: DType) -> te.Tensor:
    if bias is None and total.dtype is result:
        return total

    def element(*i: Expr) -> Expr:
        value: Expr = total[i]
        value = value if bias is None else value + bias[i[1], i[-1]].astype(total.dtype)
        return te.cast(value, result)

    return te.compute(total.shape, element, name="conv_bias")
