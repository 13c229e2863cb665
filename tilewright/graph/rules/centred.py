"""Constant bytes that absorb their zero points."""

from __future__ import annotations

import numpy as np

from tilewright.graph.ir import Array, Value


def centred_bytes(weight: Value | None, zero: Value | None, axis: int) -> Array | None:
    """Constant weights without their zero points (one, or one for each along an axis), as bytes,
    signed or not; None where weights or differences are no bytes, or zero points are others."""
    stored = None if weight is None else weight.constant
    if weight is None or stored is None or not weight.dtype.is_integer or weight.dtype.bits != 8:
        return None
    if zero is None or zero.constant is None:
        return stored if zero is None else None
    if zero.constant.size not in (1, stored.shape[axis]):
        return None
    zeros = zero.constant.reshape([-1 if k == axis else 1 for k in range(stored.ndim)])
    centred = stored.astype(np.int16) - zeros.astype(np.int16)
    for dtype in (np.int8, np.uint8):
        ends = np.iinfo(dtype)
        if ends.min <= centred.min(initial=0) and centred.max(initial=0) <= ends.max:
            return centred.astype(dtype)
    return None
