"""Requantizes the sum of two bytes by a multiplication instead of a division.

    quantize(dequantize(a) + dequantize(b), c) = quantize((dequantize(a) + dequantize(b)) * r, 1)

A division takes longer than all else that is done with an element. Two bytes have 65536 sums: where
some r near 1 / c rounds every one of them to the same number as c does, the result is unchanged.
"""

from __future__ import annotations

import numpy as np

from tilewright.graph.ir import Array, Call, Value
from tilewright.graph.rules.site import Site
from tilewright.ir import DType

_FLOAT32 = DType.of("float32")


def product_for_quotient(s: Site) -> Value | None:
    """The rule for `quantize`."""
    scale, is_plain = s.arg(1).constant, s.attr("precision") is None
    if scale is None or scale.size != 1 or not is_plain or not s.result.dtype.is_integer:
        return None
    call = s.made_by(s.x, "add")
    if call is None or s.x.dtype is not _FLOAT32 or scale.dtype != np.float32:
        return None
    factor = _factor(s, call, scale.reshape(()))
    if factor is None:
        return None
    one = s.constant(np.ones_like(scale), s.arg(1))
    return s.again(s.call, [s.emit("mul", s.x, s.constant(factor)), one, s.call.args[2]])


def _factor(s: Site, add: Call, scale: Array) -> Array | None:
    """The factor for sums; None where none gives the same results, or none is needed."""
    reals = [_reals(s, a) for a in add.args]
    a, b = reals
    if a is None or b is None or scale == 1 or not scale > 0:
        return None
    with np.errstate(all="ignore"):
        sums = a[:, None] + b[None, :]
        wanted = np.rint(sums / scale)
        near = np.float32(1) / scale
        around = (near, np.nextafter(near, np.float32(0)), np.nextafter(near, np.float32(np.inf)))
        same = (r for r in around if np.array_equal(np.rint(sums * r), wanted))
        return next((np.asarray(r, np.float32) for r in same if np.isfinite(r)), None)


def _reals(s: Site, value: Value | None) -> Array | None:
    """All the numbers that an element of a tensor of bytes may stand for."""
    call = None if value is None else s.made_by(value, "dequantize")
    if call is None or call.attrs["block"]:
        return None
    x, scale, zero = call.args
    assert x is not None and scale is not None
    known = [scale.constant, None if zero is None else zero.constant]
    are_known = known[0] is not None and (zero is None or known[1] is not None)
    is_single = all(k is None or k.size == 1 for k in known)
    if not (are_known and is_single and x.dtype.is_integer and x.dtype.bits == 8):
        return None
    every = np.arange(x.dtype.min_value, x.dtype.max_value + 1).astype(x.dtype.numpy)
    single = [None if k is None else k.reshape(()) for k in known]
    return np.asarray(call.op.evaluate([every, *single], call.attrs)[0])
