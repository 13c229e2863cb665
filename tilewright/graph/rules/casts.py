"""Casts: there and back where nothing is lost on the way."""

from __future__ import annotations

from tilewright.graph.ir import Value
from tilewright.graph.ir.types import STRING
from tilewright.graph.rules.site import Site
from tilewright.ir import DType


def holds(wide: DType, narrow: DType) -> bool:
    """Whether every value of `narrow` is one of `wide`."""
    if wide is narrow or (narrow.is_bool and wide is not STRING):
        return True
    if wide is STRING or narrow is STRING or wide.is_bool:
        return False
    if wide.is_float and narrow.is_float:
        return _holds_float(wide, narrow)
    if wide.is_float:
        digits = narrow.bits - narrow.is_signed
        return narrow.is_integer and digits <= _mantissa(wide) + 1 and wide.bits >= 32
    if narrow.is_float:
        return False
    return wide.bits - wide.is_signed >= narrow.bits - narrow.is_signed and (
        wide.is_signed or not narrow.is_signed
    )


def _mantissa(dtype: DType) -> int:
    layout = dtype.float_format
    return 0 if layout is None else layout.mantissa


def _holds_float(wide: DType, narrow: DType) -> bool:
    """For IEEE's types of 16 bits and more; narrower ones have values that others lack."""
    if narrow.bits < 16:
        return False
    return wide.bits > narrow.bits


def _to_same(s: Site) -> Value | None:
    """cast(x, type of x) = x"""
    return s.x if s.x.dtype is s.attr("dtype") else None


def _back(s: Site) -> Value | None:
    """cast(cast(x, wide), type of x) = x"""
    inner = s.made_by(s.x, "cast")
    source = None if inner is None else inner.args[0]
    if source is None or source.dtype is not s.attr("dtype"):
        return None
    return source if holds(s.x.dtype, source.dtype) else None


def _through(s: Site) -> Value | None:
    """cast(cast(x, wide), narrow) = cast(x, narrow), among integers or among floats"""
    inner = s.made_by(s.x, "cast")
    source = None if inner is None else inner.args[0]
    if source is None or not holds(s.x.dtype, source.dtype):
        return None
    kinds = {
        t.kind if t.is_float else t.is_integer for t in (source.dtype, s.x.dtype, s.result.dtype)
    }
    if len(kinds) != 1 or not (source.dtype.is_float or source.dtype.is_integer):
        return None
    return s.again(s.call, [source])


RULES = {"cast": (_to_same, _back, _through)}
