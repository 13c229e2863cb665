"""Quantizes values as early as possible, so that operators that move them move bytes."""

from __future__ import annotations

from typing import Final

import numpy as np

from tilewright.graph.ir import Call, Value
from tilewright.graph.rules.site import Site

#: Scales within these limits restore every byte.
_LEAST, _GREATEST = 1e-30, 1e30
#: Operators whose results are unchanged elements of their operands; the greatest element is
#: still the greatest after rounding.
_MOVES: Final = frozenset(["concat", "max_pool", "resize"])


def _before_moves(s: Site) -> Value | None:
    """quantize(concat(x, y), c) = concat(quantize(x, c), quantize(y, c)); others likewise"""
    inner = s.private(s.x, *_MOVES)
    if inner is None or _scale_of(s.call) is None or not _only_moves(inner):
        return None
    images = [a for a in inner.args if a is not None]
    if any(a.dtype is not s.x.dtype for a in images):
        return None
    return s.again(inner, [s.again(s.call, [a, *s.call.args[1:]]) for a in images])


def _only_moves(call: Call) -> bool:
    if call.op.name == "resize":
        return call.attrs["mode"] == "nearest" and call.attrs["coordinates"] != "tf_crop_and_resize"
    return not call.attrs.get("return_indices")


def _back(s: Site) -> Value | None:
    """quantize(dequantize(x, c, z), c, z) = x"""
    inner = s.made_by(s.x, "dequantize")
    ours = _scale_of(s.call)
    theirs = None if inner is None else _scale_of(inner)
    if inner is None or ours is None or ours != theirs:
        return None
    (source, *_), bits = inner.args, s.result.dtype.bits
    assert source is not None
    # Wider integers are not all exact in float32.
    return source if source.dtype is s.result.dtype and bits <= 8 else None


def _of_numbers(s: Site) -> Value | None:
    """where(isnan(dequantize(x, c)), y, z) = z"""
    test = s.made_by(s.x, "isnan")
    inner = None if test is None else s.made_by(test.args[0], "dequantize")
    if inner is None or inner.args[0] is None or not inner.args[0].dtype.is_integer:
        return None
    other = s.arg(2)
    is_whole = other.shape == s.result.shape and other.dtype is s.result.dtype
    return other if is_whole and _scale_of(inner) is not None else None


def _scale_of(call: Call) -> tuple[float, int] | None:
    """The one scale and zero point of a call, if they are known and restore integers."""
    scale, zero = call.args[1:]
    assert scale is not None
    zeros = np.zeros((), np.int64) if zero is None else zero.constant
    if scale.constant is None or zeros is None or scale.constant.size != 1 or zeros.size != 1:
        return None
    if call.attrs["block"] or call.attrs.get("precision") is not None:
        return None
    number = float(scale.constant.reshape(()))
    plain = _LEAST < number < _GREATEST and zeros.dtype.kind in "iu"
    return (number, int(zeros.reshape(()))) if plain else None


#: For machines that are faster with bytes than with floats.
RULES: Final = {"quantize": (_back, _before_moves), "where": (_of_numbers,)}
