"""Convolutions of images whose channels come last: N×1×spatial×C by weights O×kernel×C.

The sum runs over the kernel and then over channels, which are contiguous in the image and in the
weights. Each group of channels is a separate product.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.graph.ir import Array, Value
from tilewright.graph.ir.attributes import Dims, Ints
from tilewright.graph.ir.op import op
from tilewright.graph.ir.types import TensorType, Type, known_dim
from tilewright.graph.ops.elementwise.elementwise import require_kind, require_same_dtype
from tilewright.graph.ops.neural.conv import (
    conv_reference,
    require_bias,
    require_bias_type,
    require_fill,
    with_bias,
)
from tilewright.graph.ops.neural.windows import Window
from tilewright.graph.ops.reduce.reduced import accumulator
from tilewright.graph.sizes.agreement import require_equal, require_multiple
from tilewright.graph.sizes.naturals import simplify_size
from tilewright.ir import DType, Expr
from tilewright.support.errors import UserError
from tilewright.tensor import te


@op
def conv_last(
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
    """The convolution of an image with channels last; `dtype` and `fill` are as for `conv`."""
    require_kind("number", x, weight)
    if dtype is None:
        require_same_dtype(x, weight)
    require_fill(x, fill)
    require_bias(bias, weight.shape[0])
    require_bias_type(bias, dtype or x.dtype)
    if x.ndim != weight.ndim + 1 or known_dim(x.shape[1]) != 1:
        raise UserError(f"{x} and {weight} are no image with channels last and its weights")
    require_equal(x.shape[-1], weight.shape[-1] * groups, "channels of the image and the weights")
    require_multiple(weight.shape[0], groups, "output channels in groups")
    window = Window.of(weight.shape[1:-1], strides, pads, dilations)
    shape = [x.shape[0], 1, *window.places(x.shape[2:-1]), weight.shape[0]]
    return TensorType(dtype or x.dtype, shape)


@conv_last.reference
def conv_last_reference(x: Array, weight: Array, bias: Array | None, **attrs: Any) -> Array:
    order = (0, x.ndim - 1, *range(2, x.ndim - 1))
    plain = x.transpose(*order, 1)[..., 0]
    factors = weight.transpose(0, weight.ndim - 1, *range(1, weight.ndim - 1))
    made = conv_reference(plain, factors, bias, **attrs)
    return made.transpose(0, *range(2, made.ndim), 1)[:, None].copy()


@conv_last.compute
def conv_last_compute(
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
    window = Window.of(weight.shape[1:-1], strides, pads, dilations)
    image, work = window.padded(x, fill), accumulator(out.dtype)
    (taps, axes), rc = window.taps(), te.reduce_axis(weight.shape[-1], name="rc")

    def product(n: Expr, one: Any, channel: Any, at: Sequence[Expr], o: Any) -> Any:
        pixel = image[(n, one, *window.at(at, taps), channel)]
        factor = weight[(o, *taps, rc)]
        return te.sum(pixel.astype(work) * factor.astype(work), axis=[*axes, rc])

    if groups == 1:
        # The dimension of one element is read by its index, so that all from the batch on are rows.
        def single(n: Expr, one: Expr, *i: Expr) -> Any:
            return product(n, one, rc, i[:-1], i[-1])

        names = ["n", "one", *window.names, "o"]
        total = te.compute(out.shape, single, name="conv", axis_names=names)
        return with_bias(total, bias, out.dtype, "conv_bias", channel=-1)

    inputs, outputs = weight.shape[-1], simplify_size(te.floordiv(weight.shape[0], groups))

    def split(n: Expr, g: Expr, *i: Expr) -> Any:
        return product(n, 0, g * inputs + rc, i[:-1], g * outputs + i[-1])

    shape = (out.shape[0], groups, *out.shape[2:-1], outputs)
    names = ["n", "g", *window.names, "o"]
    parts = te.compute(shape, split, name="grouped", axis_names=names)

    def joined(n: Expr, one: Expr, *i: Expr) -> Expr:
        del one
        group, o = te.floordiv(i[-1], outputs), te.floormod(i[-1], outputs)
        return parts[(n, group, *i[:-1], o)]

    total = te.compute(out.shape, joined, name="conv")
    return with_bias(total, bias, out.dtype, "conv_bias", channel=-1)
