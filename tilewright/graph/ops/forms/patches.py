"""im2col: the elements under each window, copied, so that a convolution is a product."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tilewright.graph.ir import Array, Value
from tilewright.graph.ir.attributes import Dims, Ints
from tilewright.graph.ir.op import op
from tilewright.graph.ir.types import Type, known_dim
from tilewright.graph.ops.elementwise.elementwise import require_same_dtype
from tilewright.graph.ops.neural.windows import Window
from tilewright.ir import Expr
from tilewright.tensor import te


@op
def patches(
    x: Value,
    fill: Value | None = None,
    *,
    kernel: Ints,
    strides: Ints = (),
    pads: Dims = (),
    dilations: Ints = (),
) -> Type:
    """N×places×kernel×C of an image N×spatial×C: all that a window sees at each of its places.
    Around the image lies `fill`, or zero."""
    if fill is not None:
        require_same_dtype(x, fill)
    window = Window.of(kernel, strides, pads, dilations)
    places = window.places(x.shape[1:-1])
    return x.tensor.with_shape([x.shape[0], *places, *kernel, x.shape[-1]])


@patches.reference
def patches_reference(
    x: Array, fill: Array | None, *, kernel: Ints, strides: Ints, pads: Ints, dilations: Ints
) -> Array:
    window = Window.of(kernel, strides, pads, dilations)
    image = np.moveaxis(x, -1, 1)
    places = [int(known_dim(p) or 0) for p in window.places([te.const(n) for n in image.shape[2:]])]
    padded = window.with_padding(image, 0 if fill is None else fill.reshape(()), places)
    seen = np.empty((*image.shape[:2], *places, *kernel), x.dtype)
    for inside, part in window.patches(padded, places):
        seen[(..., *inside)] = part
    return np.ascontiguousarray(np.moveaxis(seen, 1, -1))


@patches.compute
def patches_compute(
    x: te.Tensor,
    fill: te.Tensor | None,
    *,
    kernel: Ints,
    strides: Ints,
    pads: Dims,
    dilations: Ints,
) -> te.Tensor:
    window = Window.of(kernel, strides, pads, dilations)
    around = te.const(0, x.dtype) if fill is None else fill[(0,) * fill.ndim]
    places = window.places(x.shape[1:-1])

    def element(*i: Expr) -> Expr:
        place, inside = i[1 : 1 + window.rank], i[1 + window.rank : -1]
        at = [a - b for a, b in zip(window.at(place, inside), window.before, strict=True)]
        value = x[(i[0], *at, i[-1])]
        conditions = _inside(window, at, x.shape[1:-1])
        return te.if_then_else(te.all_of(*conditions), value, around) if conditions else value

    return te.compute([x.shape[0], *places, *kernel, x.shape[-1]], element, name="patches")


def _inside(window: Window, at: Sequence[Expr], extents: Sequence[Expr]) -> list[Expr]:
    """The conditions for a position to be in the image, for sides where it may not be."""
    conditions: list[Expr] = []
    for n, (index, extent) in enumerate(zip(at, extents, strict=True)):
        conditions += [index >= 0] if known_dim(window.before[n]) != 0 else []
        conditions += [index < extent] if known_dim(window.after[n]) != 0 else []
    return conditions
