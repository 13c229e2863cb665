"""sin, cos and tan, after `reduction`."""

from __future__ import annotations

from tilewright.ir import Expr, select
from tilewright.lower.math.builder import MathBuilder, Pair
from tilewright.lower.math.coefficients import COS, SIN
from tilewright.lower.math.reduction import reduce_angle


def sin(b: MathBuilder, x: Expr) -> Expr:
    angle, quadrant = reduce_angle(b, x)
    value = select(_is_odd(b, quadrant), _cos(b, angle), _sin(b, angle))
    return _flipped(b, value, _sign_bit(b, x) ^ _to_sign(b, quadrant >> 1))


def cos(b: MathBuilder, x: Expr) -> Expr:
    angle, quadrant = reduce_angle(b, x)
    value = select(_is_odd(b, quadrant), _sin(b, angle), _cos(b, angle))
    return _flipped(b, value, _to_sign(b, (quadrant + b.whole(1)) >> 1))


def tan(b: MathBuilder, x: Expr) -> Expr:
    """sin / cos, or -cos / sin in the odd quadrants."""
    angle, quadrant = reduce_angle(b, x)
    odd, sine, cosine = _is_odd(b, quadrant), _sin(b, angle), _cos(b, angle)
    value = select(odd, cosine, sine) / select(odd, sine, cosine)
    return _flipped(b, value, _sign_bit(b, x) ^ _to_sign(b, quadrant))


def _sin(b: MathBuilder, angle: Pair) -> Expr:
    r, low = angle
    z = r * r
    return r + b.fma(r * z, b.polynomial(b.of_type(SIN), z), low)


def _cos(b: MathBuilder, angle: Pair) -> Expr:
    r, low = angle
    z = r * r
    tail = b.fma(z * z, b.polynomial(b.of_type(COS), z), -(r * low))
    return 1.0 - (z * 0.5 - tail)


def _is_odd(b: MathBuilder, quadrant: Expr) -> Expr:
    return (quadrant & b.whole(1)) != b.whole(0)


def _to_sign(b: MathBuilder, flag: Expr) -> Expr:
    """The lowest bit moved to the position of the sign."""
    return flag << (b.width - 1)


def _sign_bit(b: MathBuilder, x: Expr) -> Expr:
    return b.bits(x) & b.whole(1 << (b.width - 1))


def _flipped(b: MathBuilder, value: Expr, sign: Expr) -> Expr:
    return b.from_bits(b.bits(value) ^ sign)
