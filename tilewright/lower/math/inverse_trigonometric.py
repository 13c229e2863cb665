"""asin, acos, atan and atan2."""

from __future__ import annotations

from tilewright.ir import Expr, call, maximum, minimum, select
from tilewright.lower.math.builder import MathBuilder
from tilewright.lower.math.coefficients import ASIN, ATAN, HALF_PI

TAN_EIGHTH = 0.41421356237309503


def asin(b: MathBuilder, x: Expr) -> Expr:
    """Above 1/2: asin(x) = pi/2 - 2 asin(sqrt((1 - x) / 2))."""
    size = b.abs(x)
    near = size <= 0.5
    root, arc = _arc(b, size, near)
    high, low = b.of_type(HALF_PI)
    far = high - (2.0 * root + (2.0 * arc - low))
    return b.with_sign(select(near, root + arc, far), x)


def acos(b: MathBuilder, x: Expr) -> Expr:
    size = b.abs(x)
    near = size <= 0.5
    root, arc = _arc(b, size, near)
    high, low = b.of_type(HALF_PI)
    middle = high - (b.with_sign(root, x) + (b.with_sign(arc, x) - low))
    doubled = 2.0 * (root + arc)
    left = 2.0 * (high - (root + (arc - low)))
    return select(near, middle, select(x < 0.0, left, doubled))


def _arc(b: MathBuilder, size: Expr, near: Expr) -> tuple[Expr, Expr]:
    """s and asin(s) - s, for s = |x| or, far from 0, sqrt((1 - |x|) / 2)."""
    z = select(near, size * size, (1.0 - size) * 0.5)
    root = select(near, size, call("sqrt", z))
    return root, root * (z * b.polynomial(b.of_type(ASIN), z))


def atan(b: MathBuilder, x: Expr) -> Expr:
    size = b.abs(x)
    angle = _first_octant(b, minimum(size, 1.0), maximum(size, 1.0))
    high, low = b.of_type(HALF_PI)
    angle = select(size > 1.0, high - (angle - low), angle)
    return b.with_sign(angle, x)


def atan2(b: MathBuilder, y: Expr, x: Expr) -> Expr:
    """The angle of (x, y), from the octant where 0 <= y <= x."""
    across, along = b.abs(y), b.abs(x)
    less, more = minimum(across, along), maximum(across, along)
    # Sums of the two must not overflow, and products must not be subnormal.
    scale = select(more < 2.0 ** (4 - b.bias), b.number(2.0 ** (b.mantissa + 1)), b.number(1.0))
    scale = select(more > 2.0 ** (b.bias - 1), b.number(0.25), scale)
    endless, empty = more == b.infinity, more == 0.0
    both_endless = select(less == b.infinity, b.number(1.0), b.number(0.0))
    less = select(endless, both_endless, less * scale)
    more = select(endless | empty, b.number(1.0), more * scale)
    angle = _first_octant(b, less, more)
    high, low = b.of_type(HALF_PI)
    angle = select(across > along, high - (angle - low), angle)
    angle = select(call("signbit", x), 2.0 * high - (angle - 2.0 * low), angle)
    return b.with_sign(angle, y)


def _first_octant(b: MathBuilder, less: Expr, more: Expr) -> Expr:
    """atan(less / more) for 0 <= less <= more; above pi/8 around pi/4, by the same division."""
    upper = less > more * TAN_EIGHTH
    t = select(upper, less - more, less) / select(upper, less + more, more)
    z = t * t
    arc = b.fma(t * z, b.polynomial(b.of_type(ATAN), z), t)
    high, low = b.of_type(HALF_PI)
    return select(upper, 0.5 * high + (arc + 0.5 * low), arc)
