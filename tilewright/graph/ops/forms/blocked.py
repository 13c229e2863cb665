"""Blocked layouts of images, weights and biases; see `graph.layouts.images`."""

from __future__ import annotations

import numpy as np

from tilewright.graph.ir import Array, Value
from tilewright.graph.ir.op import op
from tilewright.graph.ir.types import TensorType, Type, known_dim
from tilewright.ir import Expr
from tilewright.support.errors import UserError
from tilewright.tensor import te


@op
def to_blocked(x: Value, *, block: int) -> Type:
    """N×C×spatial as N×(C/b)×spatial×b; channels that do not fill the last block are zero."""
    batch, channels, *spatial = x.shape
    return x.tensor.with_shape([batch, _blocks(channels, block), *spatial, block])


@to_blocked.reference
def to_blocked_reference(x: Array, *, block: int) -> Array:
    return blocked_array(x, 1, block)


@to_blocked.compute
def to_blocked_compute(x: te.Tensor, *, block: int, out: TensorType) -> te.Tensor:
    channels = known_dim(x.shape[1])
    assert channels is not None

    def element(n: Expr, o: Expr, *i: Expr) -> Expr:
        channel = o * block + i[-1]
        value: Expr = x[(n, channel, *i[:-1])]
        if channels % block == 0:
            return value
        return te.if_then_else(channel < channels, value, te.const(0, x.dtype))

    return te.compute(out.shape, element, name="to_blocked")


@op
def from_blocked(x: Value, *, channels: int) -> Type:
    """N×(C/b)×spatial×b as N×C×spatial."""
    _require_blocks(x, channels)
    batch, _, *spatial, _ = x.shape
    return x.tensor.with_shape([batch, channels, *spatial])


def _require_blocks(x: Value, channels: int) -> None:
    _, blocks, *_, block = x.shape
    if known_dim(blocks) != -(-channels // (known_dim(block) or 1)):
        raise UserError(f"{x} does not hold {channels} channels")


@from_blocked.reference
def from_blocked_reference(x: Array, *, channels: int) -> Array:
    return unblocked_array(x, 1)[:, :channels].copy()


@from_blocked.compute
def from_blocked_compute(x: te.Tensor, *, channels: int, out: TensorType) -> te.Tensor:
    del channels
    block = known_dim(x.shape[-1])
    assert block is not None

    def element(n: Expr, c: Expr, *i: Expr) -> Expr:
        return x[(n, te.floordiv(c, block), *i, te.floormod(c, block))]

    return te.compute(out.shape, element, name="from_blocked")


@op
def clear_fill(x: Value, *, channels: int) -> Type:
    """A blocked image with zeros for the channels that only fill its last block."""
    _require_blocks(x, channels)
    return x.type


@clear_fill.reference
def clear_fill_reference(x: Array, *, channels: int) -> Array:
    return blocked_array(from_blocked_reference(x, channels=channels), 1, x.shape[-1])


@clear_fill.compute
def clear_fill_compute(x: te.Tensor, *, channels: int, out: TensorType) -> te.Tensor:
    block = known_dim(x.shape[-1])
    assert block is not None

    def element(*i: Expr) -> Expr:
        return te.if_then_else(i[1] * block + i[-1] < channels, x[i], te.const(0, x.dtype))

    return te.compute(out.shape, element, name="clear_fill")


@op
def pack_conv_weights(weight: Value, *, in_block: int, out_block: int) -> Type:
    """O×I×kernel as (O/c)×(I/b)×kernel×b×c, with zeros where blocks are not filled.

    With `in_block` 0 the inputs are not blocked: (O/c)×I×kernel×c.
    """
    outputs, inputs, *kernel = weight.shape
    shape = [_blocks(outputs, out_block), inputs, *kernel, out_block]
    if in_block:
        shape[1:2] = [_blocks(inputs, in_block)]
        shape.insert(-1, in_block)
    return weight.tensor.with_shape(shape)


@pack_conv_weights.reference
def pack_conv_weights_reference(weight: Array, *, in_block: int, out_block: int) -> Array:
    if in_block:
        weight = blocked_array(weight, 1, in_block)
    return blocked_array(weight, 0, out_block)


@pack_conv_weights.compute
def pack_conv_weights_compute(
    weight: te.Tensor, *, in_block: int, out_block: int, out: TensorType
) -> te.Tensor:
    def element(oo: Expr, io: Expr, *i: Expr) -> Expr:
        *kernel, ii, oi = i if in_block else (*i[:-1], te.const(0), i[-1])
        o, c = oo * out_block + oi, io * in_block + ii if in_block else io
        inside = te.all_of(o < weight.shape[0], c < weight.shape[1])
        return te.if_then_else(inside, weight[(o, c, *kernel)], te.const(0, weight.dtype))

    return te.compute(out.shape, element, name="pack_conv_weights")


@op
def pack_channels(x: Value, *, block: int) -> Type:
    """One number for each channel (and more dimensions): C×… as (C/b)×…×b."""
    return x.tensor.with_shape([_blocks(x.shape[0], block), *x.shape[1:], block])


@pack_channels.reference
def pack_channels_reference(x: Array, *, block: int) -> Array:
    return blocked_array(x, 0, block)


@pack_channels.compute
def pack_channels_compute(x: te.Tensor, *, block: int, out: TensorType) -> te.Tensor:
    def element(o: Expr, *i: Expr) -> Expr:
        channel = o * block + i[-1]
        value: Expr = x[(channel, *i[:-1])]
        return te.if_then_else(channel < x.shape[0], value, te.const(0, x.dtype))

    return te.compute(out.shape, element, name="pack_channels")


# ---- by NumPy -----------------------------------------------------------------------------------


def blocked_array(x: Array, axis: int, block: int) -> Array:
    """The array with blocks of `axis` as its innermost dimension, padded with zeros."""
    missing = -x.shape[axis] % block
    pads = [(0, missing if n == axis else 0) for n in range(x.ndim)]
    full = np.pad(x, pads) if missing else x
    split = full.reshape(*full.shape[:axis], -1, block, *full.shape[axis + 1 :])
    return np.ascontiguousarray(np.moveaxis(split, axis + 1, -1))


def unblocked_array(x: Array, axis: int) -> Array:
    """The inverse of `blocked_array`, except that the padding of the last block stays."""
    joined = np.moveaxis(x, -1, axis + 1)
    shape = (*joined.shape[:axis], -1, *joined.shape[axis + 2 :])
    return joined.reshape(shape)


def _blocks(extent: Expr, block: int) -> int:
    number = known_dim(extent)
    if number is None or block < 1:
        raise UserError(f"{extent} channels cannot be laid out in blocks of {block}")
    return -(-number // block)
