"""Bytes that a model dequantizes, and the real numbers that sums of their products stand for."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tilewright.graph.ir import Array, Call, Value
from tilewright.graph.rules.site import Site
from tilewright.graph.sizes.axes import axis_of
from tilewright.ir import DType

_FLOAT32, _INT32 = DType.of("float32"), DType.of("int32")


class Bytes(NamedTuple):
    """A tensor of bytes with the single scale and zero point that dequantize it."""

    value: Value
    scale: Array
    zero: int


class Weights(NamedTuple):
    """Signed bytes without a zero point, and a scale for each output."""

    array: Array
    scales: Array


def _dequantized(s: Site, value: Value) -> Call | None:
    call = s.made_by(value, "dequantize")
    if call is None or value.dtype is not _FLOAT32 or call.attrs["block"]:
        return None
    x, scale, zero = call.args
    assert x is not None and scale is not None
    known = scale.constant is not None and (zero is None or zero.constant is not None)
    return call if known and x.dtype.is_integer and x.dtype.bits == 8 else None


def bytes_of(s: Site, value: Value) -> Bytes | None:
    call = _dequantized(s, value)
    if call is None:
        return None
    x, scale, zero = call.args
    assert x is not None and scale is not None and scale.constant is not None
    zeros = np.zeros((), np.int8) if zero is None else zero.constant
    assert zeros is not None
    if x.is_constant or scale.constant.size != 1 or zeros.size != 1:
        return None
    return Bytes(x, scale.constant.reshape(()), int(zeros.reshape(())))


def weights_of(s: Site, value: Value, outputs: int) -> Weights | None:
    """Constant weights with scales along the axis of outputs."""
    call = _dequantized(s, value)
    stored = None if call is None or call.args[0] is None else call.args[0].constant
    if call is None or stored is None:
        return None
    scale, zero = call.args[1:]
    assert scale is not None and scale.constant is not None
    scales = scale.constant.astype(np.float32)
    if scales.size > 1 and axis_of(call.attrs["axis"], stored.ndim) != outputs:
        return None
    centred = stored.astype(np.int16)
    if zero is not None and zero.constant is not None:
        zeros = zero.constant.astype(np.int16).reshape(-1)
        centred = centred - zeros.reshape([-1 if n == outputs else 1 for n in range(stored.ndim)])
    if centred.size and not -128 <= centred.min() <= centred.max() <= 127:
        return None
    # Sums of bytes must not overflow for any other factor, as those of floats would not.
    others = tuple(n for n in range(stored.ndim) if n != outputs)
    if np.abs(centred).sum(axis=others, dtype=np.int64).max(initial=0) * 256 > _INT32.max_value:
        return None
    full = np.broadcast_to(scales.reshape(-1), (stored.shape[outputs],))
    return Weights(centred.astype(np.int8), full)


def scaled(s: Site, total: Value, x: Bytes, sums: Array, scales: Array) -> Value:
    """The real numbers that sums of bytes stand for."""
    if x.zero:
        total = s.emit("sub", total, s.constant((x.zero * sums).astype(total.dtype.numpy)))
    factors = (x.scale.astype(np.float32) * scales).astype(np.float32)
    real = total if total.dtype is _FLOAT32 else s.emit("cast", total, dtype=_FLOAT32)
    return s.emit("mul", real, s.constant(factors))
