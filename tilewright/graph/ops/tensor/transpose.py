"""Dimensions in another order, and blocks of pixels that become channels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tilewright.graph.ir import Array, Call, Value
from tilewright.graph.ir.attributes import Ints
from tilewright.graph.ir.op import op
from tilewright.graph.ir.types import TensorType, Type
from tilewright.graph.layouts.images import PLAIN, Blocking, Emit, Form, blocked_type, channels_of
from tilewright.graph.sizes.agreement import require_multiple
from tilewright.graph.sizes.axes import axes_of
from tilewright.ir import Expr
from tilewright.support.errors import UserError
from tilewright.tensor import te


@op
def transpose(x: Value, *, axes: Ints | None = None) -> Type:
    """The dimensions in the order of `axes`; reversed unless given."""
    return x.tensor.with_shape(x.shape[a] for a in _order(axes, x.ndim))


@transpose.reference
def transpose_reference(x: Array, *, axes: Ints | None) -> Array:
    return np.ascontiguousarray(np.transpose(x, axes)).reshape(
        [x.shape[a] for a in _order(axes, x.ndim)]
    )


@transpose.compute
def transpose_compute(x: te.Tensor, *, axes: Ints | None) -> te.Tensor:
    order = _order(axes, x.ndim)
    place = {axis: n for n, axis in enumerate(order)}
    return te.compute(
        [x.shape[a] for a in order],
        lambda *i: x[tuple(i[place[a]] for a in range(x.ndim))],
        name="transpose",
    )


@transpose.layouts
def transpose_layouts(blocking: Blocking, call: Call, out: TensorType) -> Iterator[Form]:
    """Channels that are moved to the end of an image, or back, may already be there."""
    (x,) = call.args
    assert x is not None
    order = _order(call.attrs["axes"], x.ndim)
    if not blocking.is_last or x.ndim < 3:
        return

    def viewed(shape: Sequence[Expr]) -> Emit:
        return lambda builder, args: builder.emit("reshape", args[0], shape=shape)

    if order == (0, *range(2, x.ndim), 1):
        for block in blocking.blocks(x.type):
            yield Form((block,), PLAIN, 0.0, viewed(out.shape))
    if order == (0, x.ndim - 1, *range(1, x.ndim - 1)):
        for block in blocking.blocks(out):
            yield Form((PLAIN,), block, 0.0, viewed(blocked_type(out, block).shape))


@transpose.cost
def transpose_cost(blocking: Blocking, call: Call, out: TensorType) -> float:
    """The cost of a copy, where layouts can avoid it."""
    return blocking.change(out, PLAIN, channels_of(out) or PLAIN) if blocking.is_last else 0.0


@transpose.symbolic
def transpose_symbolic(x: Value, *, axes: Ints | None) -> Array | None:
    return None if x.known is None else x.known.transpose(_order(axes, x.ndim))


def _order(axes: Ints | None, rank: int) -> tuple[int, ...]:
    order = tuple(reversed(range(rank))) if axes is None else axes_of(axes, rank)
    if len(order) != rank:
        raise UserError(f"{list(order)} does not order {rank} dimensions")
    return order


# ---- depth and space ----------------------------------------------------------------------------


@op
def depth_to_space(x: Value, *, block: int, mode: str = "DCR") -> Type:
    """N×(b·b·C)×H×W to N×C×(b·H)×(b·W): channels become blocks of b×b pixels.

    The channels count pixels of the block first ("DCR"), or depth first ("CRD").
    """
    n, c, h, w = _image(x, block)
    if mode not in _DEPTH_TO_SPACE:
        raise UserError(f"mode is {mode!r}", remedy="use DCR or CRD")
    require_multiple(c, block * block, f"channels that become {block}×{block} pixels")
    return x.tensor.with_shape([n, c // (block * block), h * block, w * block])


#: The positions of (depth, row, column) of a block among the dimensions channels are split into.
_DEPTH_TO_SPACE = {"DCR": (3, 1, 2), "CRD": (1, 2, 3)}


@depth_to_space.reference
def depth_to_space_reference(x: Array, *, block: int, mode: str) -> Array:
    n, c, h, w = x.shape
    out = np.empty((n, c // (block * block), h * block, w * block), x.dtype)
    depth = out.shape[1]
    for row in range(block):
        for column in range(block):
            pixel = row * block + column
            by_pixel = slice(pixel * depth, (pixel + 1) * depth)
            chosen = by_pixel if mode == "DCR" else slice(pixel, None, block * block)
            out[:, :, row::block, column::block] = x[:, chosen]
    return out


@depth_to_space.decompose
def depth_to_space_decompose(b: Any, x: Value, *, block: int, mode: str) -> Value:
    n, c, h, w = x.shape
    depth = c // (block * block)
    parts = [block, block, depth] if mode == "DCR" else [depth, block, block]
    split = b.reshape(x, shape=[n, *parts, h, w])
    at_depth, at_row, at_column = _DEPTH_TO_SPACE[mode]
    transposed = b.transpose(split, axes=[0, at_depth, 4, at_row, 5, at_column])
    return b.reshape(transposed, shape=[n, depth, h * block, w * block])


@op
def space_to_depth(x: Value, *, block: int) -> Type:
    """N×C×(b·H)×(b·W) to N×(b·b·C)×H×W: blocks of b×b pixels become channels, pixels first."""
    n, c, h, w = _image(x, block)
    for extent in (h, w):
        require_multiple(extent, block, "pixels that become channels")
    return x.tensor.with_shape([n, c * (block * block), h // block, w // block])


@space_to_depth.reference
def space_to_depth_reference(x: Array, *, block: int) -> Array:
    parts = [x[:, :, row::block, column::block] for row in range(block) for column in range(block)]
    return np.concatenate(parts, axis=1)


@space_to_depth.decompose
def space_to_depth_decompose(b: Any, x: Value, *, block: int) -> Value:
    n, c, h, w = x.shape
    split = b.reshape(x, shape=[n, c, h // block, block, w // block, block])
    transposed = b.transpose(split, axes=[0, 3, 5, 1, 2, 4])
    return b.reshape(transposed, shape=[n, c * (block * block), h // block, w // block])


def _image(x: Value, block: int) -> tuple[Expr, Expr, Expr, Expr]:
    if x.ndim != 4 or block < 1:
        raise UserError(f"{x} is no image with blocks of {block} pixels", remedy="use rank 4")
    n, c, h, w = x.shape
    return n, c, h, w
