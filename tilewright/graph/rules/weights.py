"""Operators with constant weights: their axes of channels, and factors folded into weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np

from tilewright.graph.ir import Array, Call, Value
from tilewright.graph.ir.types import Dim, known_dim
from tilewright.graph.rules.site import Site

#: The factors of one axis of channels, in a shape that broadcasts against the weights.
Spread = Callable[[Call, Array, Array], Array]


class Weighted(NamedTuple):
    """An operator of (x, weight, …): its axes of channels, and factors for the weights of each."""

    outputs: int
    inputs: int
    by_output: Spread
    by_input: Spread
    #: The operand that is added for each output.
    bias: int | None = 2


def _conv_outputs(_call: Call, w: Array, v: Array) -> Array:
    return v.reshape(-1, *[1] * (w.ndim - 1))


def _conv_inputs(call: Call, w: Array, v: Array) -> Array:
    """Weights are O×(C/groups)×…: each output sees the channels of its group."""
    groups = call.attrs["groups"]
    rows = np.repeat(v.reshape(groups, -1), w.shape[0] // groups, axis=0)
    return rows.reshape(*rows.shape, *[1] * (w.ndim - 2))


def _spread_outputs(call: Call, w: Array, v: Array) -> Array:
    """Weights are C×(O/groups)×…: each input reaches the outputs of its group."""
    groups = call.attrs["groups"]
    rows = np.repeat(v.reshape(groups, -1), w.shape[0] // groups, axis=0)
    return rows.reshape(*rows.shape, *[1] * (w.ndim - 2))


def _product_outputs(call: Call, _w: Array, v: Array) -> Array:
    return v[:, None] if call.attrs["transpose_b"] else v


def _product_inputs(call: Call, _w: Array, v: Array) -> Array:
    return v if call.attrs["transpose_b"] else v[:, None]


def _dense_outputs(_call: Call, _w: Array, v: Array) -> Array:
    return v[:, None]


def _dense_inputs(_call: Call, _w: Array, v: Array) -> Array:
    return v


WEIGHTED: Final[dict[str, Weighted]] = {
    "conv": Weighted(1, 1, _conv_outputs, _conv_inputs),
    "conv_transpose": Weighted(1, 1, _spread_outputs, _conv_outputs),
    "matmul": Weighted(-1, -1, _product_outputs, _product_inputs, None),
    "gemm": Weighted(-1, -1, _product_outputs, _product_inputs),
    "dense": Weighted(-1, -1, _dense_outputs, _dense_inputs),
}


def weighted(call: Call | None) -> Weighted | None:
    """The row of an operator, if its weights and its bias are constants of 32 bits or more."""
    row = None if call is None else WEIGHTED.get(call.op.name)
    if call is None or row is None:
        return None
    x, w = call.args[:2]
    bias = None if row.bias is None else call.args[row.bias]
    if x is None or w is None or w.constant is None or x.is_constant or w.ndim < 2:
        return None
    plain = w.dtype.is_float and w.dtype.bits >= 32 and (bias is None or bias.is_constant)
    return row if plain and (bias is None or bias.ndim <= 1) else None


def per_channel(constant: Value, rank: int, axis: int, channels: Dim) -> Array | None:
    """The elements of a constant along one axis of what it is broadcast to; one, if all are equal.

    None where it differs along other axes too.
    """
    array = constant.constant
    if array is None or array.ndim > rank or not np.isfinite(array.astype(np.float64)).all():
        return None
    if array.size == 1:
        return array.reshape(())
    full = array.reshape([1] * (rank - array.ndim) + list(array.shape))
    size = full.shape[axis % rank]
    return full.reshape(-1) if full.size == size == known_dim(channels) else None


def with_outputs_scaled(s: Site, call: Call, row: Weighted, factor: Array) -> Value | None:
    """The call with its outputs multiplied, by scaling the weights and the bias."""
    w = call.args[1]
    assert w is not None and w.constant is not None
    if not s.makers.may_change(w):
        return None
    spread = factor if factor.ndim == 0 else row.by_output(call, w.constant, factor)
    args = list(call.args)
    args[1] = s.constant(_multiplied(w.constant, spread), w)
    bias = None if row.bias is None else args[row.bias]
    if bias is not None and row.bias is not None and bias.constant is not None:
        args[row.bias] = s.constant(_multiplied(bias.constant, factor), bias)
    return s.again(call, args)


def with_inputs_scaled(
    s: Site, call: Call, row: Weighted, source: Value, factor: Array
) -> Value | None:
    """The call on `source`, with the factors of its channels in the weights."""
    w = call.args[1]
    assert w is not None and w.constant is not None
    if not s.makers.may_change(w):
        return None
    spread = factor if factor.ndim == 0 else row.by_input(call, w.constant, factor)
    args = [source, s.constant(_multiplied(w.constant, spread), w), *call.args[2:]]
    return s.again(call, args)


def with_outputs_shifted(s: Site, call: Call, row: Weighted, addend: Array) -> Value | None:
    """The call with an addend for each output, in its bias."""
    channels = known_dim(s.channels(call, row.outputs))
    if row.bias is None or channels is None:
        return None
    beta = call.attrs.get("beta", 1.0)
    old = call.args[row.bias]
    if beta == 0 or (beta != 1 and old is None):
        return None
    start = np.zeros(channels) if old is None or old.constant is None else old.constant
    total = np.broadcast_to(start + addend.astype(np.float64) / beta, (channels,))
    w = call.args[1]
    assert w is not None
    args = list(call.args)
    args[row.bias] = s.constant(total.astype(w.dtype.numpy), w if old is None else old)
    return s.again(call, args)


def _multiplied(array: Array, factor: Array) -> Array:
    return (array * factor.astype(np.float64)).astype(array.dtype)
