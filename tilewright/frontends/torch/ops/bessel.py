"""Bessel's functions and Airy's, by their integrals and, far out, by asymptotic series."""

from __future__ import annotations

import math
from collections.abc import Callable

from tilewright.frontends.torch.node import Node
from tilewright.frontends.torch.ops.special import done, number, quadrature, real
from tilewright.frontends.torch.table import converts
from tilewright.graph import Value

#: From here on the series are exact to the last digits.
_FAR = 25.0


def _wide(n: Node, x: Value) -> Value:
    return n.builder.unsqueeze(x, axes=[x.ndim])


def _whole_turn(n: Node, x: Value, integrand: Callable[[Value], Value]) -> Value:
    """The mean over half a turn."""
    span = n.builder.mul(x, number(n, 0)) + math.pi
    return quadrature(n, span, integrand) * (1 / math.pi)


def _series(order: float, count: int = 12) -> list[float]:
    """The coefficients of the asymptotic series in 1 / x."""
    made = [1.0]
    for k in range(1, count):
        made.append(made[-1] * (4 * order * order - (2 * k - 1) ** 2) / (k * 8))
    return made


def _sum(n: Node, inverse: Value, coefficients: list[float]) -> Value:
    total: Value = number(n, coefficients[-1])
    for c in reversed(coefficients[:-1]):
        total = total * inverse + c
    return total


# ---- J and Y ------------------------------------------------------------------------------------


def _waves(n: Node, x: Value, order: float) -> tuple[Value, Value]:
    """J and Y for large arguments."""
    b = n.builder
    inverse = b.reciprocal(x)
    square = inverse * inverse
    made = _series(order)
    even = [c * (-1) ** k for k, c in enumerate(made[0::2])]
    odd = [c * (-1) ** k for k, c in enumerate(made[1::2])]
    p, q = _sum(n, square, even), _sum(n, square, odd) * inverse
    phase = x - (order / 2 + 0.25) * math.pi
    size = b.sqrt(inverse * (2 / math.pi))
    cosine, sine = b.cos(phase), b.sin(phase)
    return size * (p * cosine - q * sine), size * (p * sine + q * cosine)


def bessel_j(n: Node, x: Value, order: float) -> Value:
    """J of a positive argument."""
    b = n.builder
    near = b.minimum(x, number(n, _FAR))

    def turning(t: Value) -> Value:
        return b.cos(t * order - _wide(n, near) * b.sin(t))

    inside = _whole_turn(n, near, turning)
    if order != int(order):
        inside = inside - _tail(n, near, order) * (math.sin(order * math.pi) / math.pi)
    far = _waves(n, b.maximum(x, number(n, _FAR)), order)[0]
    return b.where(b.less(x, number(n, _FAR)), inside, far)


def _tail(n: Node, x: Value, order: float) -> Value:
    """∫ exp(-x sinh t - order t)."""
    b = n.builder
    span = b.asinh(b.div(number(n, 45), b.maximum(x, number(n, 1e-30))))
    return quadrature(n, span, lambda t: b.exp(b.neg(_wide(n, x) * b.sinh(t)) - t * order))


def bessel_y(n: Node, x: Value, order: int) -> Value:
    """Y of a positive argument, of order 0 or 1."""
    b = n.builder
    near = b.minimum(x, number(n, _FAR))
    wide = _wide(n, near)
    inside = _whole_turn(n, near, lambda t: b.sin(wide * b.sin(t) - t * float(order)))
    span = b.asinh(b.div(number(n, 45), b.maximum(near, number(n, 1e-30))))

    def decaying(t: Value) -> Value:
        both = b.exp(t * float(order)) + b.exp(b.neg(t * float(order))) * (-1.0) ** order
        return both * b.exp(b.neg(wide * b.sinh(t)))

    inside = inside - quadrature(n, span, decaying) * (1 / math.pi)
    far = _waves(n, b.maximum(x, number(n, _FAR)), order)[1]
    result = b.where(b.less(x, number(n, _FAR)), inside, far)
    result = b.where(b.equal(x, number(n, 0)), number(n, -math.inf), result)
    return b.where(b.less(x, number(n, 0)), number(n, math.nan), result)


@converts("special_bessel_j0", "special_bessel_j1")
def bessel_first(n: Node) -> Value:
    x, b = real(n, "self"), n.builder
    order = int(n.op.partition(".")[0][-1])
    made = bessel_j(n, b.abs(x), order)
    return done(n, b.where(b.less(x, number(n, 0)), b.neg(made), made) if order else made)


@converts("special_bessel_y0", "special_bessel_y1")
def bessel_second(n: Node) -> Value:
    return done(n, bessel_y(n, real(n, "self"), int(n.op.partition(".")[0][-1])))


@converts("special_spherical_bessel_j0")
def spherical(n: Node) -> Value:
    x, b = real(n, "x" if "x" in n else "self"), n.builder
    small = b.less(b.abs(x), number(n, 1e-3))
    series = 1.0 - x * x * (1 / 6)
    return done(n, b.where(small, series, b.div(b.sin(x), b.where(small, number(n, 1), x))))


# ---- I and K ------------------------------------------------------------------------------------


def bessel_i(n: Node, x: Value, order: int) -> Value:
    """exp(-x) · I(x) of a positive argument."""
    b = n.builder
    near = b.minimum(x, number(n, 4 * _FAR))
    wide = _wide(n, near)

    def growing(t: Value) -> Value:
        return b.exp(wide * (b.cos(t) - 1.0)) * b.cos(t * float(order))

    inside = _whole_turn(n, near, growing)
    inverse = b.reciprocal(b.maximum(x, number(n, 4 * _FAR)))
    series = _sum(n, b.neg(inverse), _series(order))
    far = b.sqrt(inverse * (1 / (2 * math.pi))) * series
    return b.where(b.less(x, number(n, 4 * _FAR)), inside, far)


def _growing(n: Node, order: int, scaled: bool) -> Value:
    x, b = real(n, "self"), n.builder
    size = b.abs(x)
    made = bessel_i(n, size, order)
    made = made if scaled else made * b.exp(size)
    return done(n, b.where(b.less(x, number(n, 0)), b.neg(made), made) if order else made)


@converts("i0", "special_i0", "special_modified_bessel_i0")
def i0(n: Node) -> Value:
    return _growing(n, 0, False)


@converts("special_i0e")
def i0e(n: Node) -> Value:
    return _growing(n, 0, True)


@converts("special_i1", "special_modified_bessel_i1")
def i1(n: Node) -> Value:
    return _growing(n, 1, False)


@converts("special_i1e")
def i1e(n: Node) -> Value:
    return _growing(n, 1, True)


def bessel_k(n: Node, x: Value, order: float) -> Value:
    """exp(x) · K(x)."""
    b = n.builder
    safe = b.maximum(x, number(n, 1e-30))
    wide = _wide(n, safe)
    span = b.acosh(b.div(number(n, 45), safe) + 1.0)

    def decaying(t: Value) -> Value:
        return b.exp(b.neg(wide * (b.cosh(t) - 1.0))) * b.cosh(t * float(order))

    result = quadrature(n, span, decaying)
    result = b.where(b.equal(x, number(n, 0)), number(n, math.inf), result)
    return b.where(b.less(x, number(n, 0)), number(n, math.nan), result)


@converts("special_modified_bessel_k0", "special_modified_bessel_k1")
@converts("special_scaled_modified_bessel_k0", "special_scaled_modified_bessel_k1")
def bessel_third(n: Node) -> Value:
    x = real(n, "x" if "x" in n else "self")
    made = bessel_k(n, x, int(n.op.partition(".")[0][-1]))
    return done(n, made if "scaled" in n.op else made * n.builder.exp(n.builder.neg(x)))


@converts("special_airy_ai")
def airy(n: Node) -> Value:
    x, b = real(n, "x" if "x" in n else "self"), n.builder
    size = b.maximum(b.abs(x), number(n, 1e-12))
    angle = b.mul(b.pow(size, number(n, 1.5)), number(n, 2 / 3))
    above = b.sqrt(size * (1 / 3)) * (1 / math.pi) * bessel_k(n, angle, 1 / 3)
    above = above * b.exp(b.neg(angle))
    waves = bessel_j(n, angle, 1 / 3) + bessel_j(n, angle, -1 / 3)
    below = b.sqrt(size) * (1 / 3) * waves
    return done(n, b.where(b.less(x, number(n, 0)), below, above))
