"""Special functions: gamma and kin, error functions, orthogonal polynomials.

They are rare in networks, so only correctness matters. All is computed in float64.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from tilewright.frontends.torch.node import Node
from tilewright.frontends.torch.table import converts
from tilewright.graph import Value


def real(n: Node, name: str) -> Value:
    """An argument in float64."""
    return n.number(n[name], "float64")


def number(n: Node, value: float) -> Value:
    """A constant in float64."""
    return n.constant(value, "float64")


def done(n: Node, value: Value) -> Value:
    """A result in its own type, and broadcast as torch says."""
    return n.cast(value, n.dtype)


# ---- gamma and kin ------------------------------------------------------------------------------

#: Bernoulli's numbers B2, B4, …, of which asymptotic series are made.
_BERNOULLI: Final = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6)
_SHIFT: Final = 8


def log_gamma(n: Node, x: Value) -> Value:
    """log |Γ(x)|: Stirling's series for large numbers, to which small ones are shifted."""
    b = n.builder
    low = b.less(x, number(n, 0.5))
    z = b.where(low, b.sub(number(n, 1), x), x)
    product = z
    for k in range(1, _SHIFT):
        product = product * (z + float(k))
    big = z + float(_SHIFT)
    total = (big - 0.5) * b.log(big) - big + 0.5 * math.log(2 * math.pi)
    power = b.reciprocal(big)
    square = power * power
    for k, number_ in enumerate(_BERNOULLI, 1):
        total = total + power * (number_ / (2 * k * (2 * k - 1)))
        power = power * square
    above = total - b.log(product)
    # Far out the product overflows, and the series needs no shift.
    far = b.greater(z, number(n, 1e10))
    above = b.where(far, b.mul(z, b.log(z) - 1.0), above)
    sine = b.abs(b.sin((x - b.floor(x)) * math.pi))
    below = b.log(math.pi / sine) - above
    result = b.where(low, below, above)
    whole = b.logical_and(b.equal(x, b.floor(x)), b.less_equal(x, number(n, 0)))
    infinite = b.logical_or(whole, b.isinf(x))
    return b.where(infinite, number(n, math.inf), result)


@converts("lgamma", "special_gammaln")
def lgamma(n: Node) -> Value:
    return done(n, log_gamma(n, real(n, "self")))


def digamma_of(n: Node, x: Value) -> Value:
    """The derivative of log Γ."""
    b = n.builder
    low = b.less(x, number(n, 0.5))
    z = b.where(low, b.sub(number(n, 1), x), x)
    shift = b.reciprocal(z)
    for k in range(1, _SHIFT):
        shift = shift + b.reciprocal(z + float(k))
    big = z + float(_SHIFT)
    inverse = b.reciprocal(big)
    total = b.log(big) - inverse * 0.5
    square = inverse * inverse
    power = square
    for k, number_ in enumerate(_BERNOULLI, 1):
        total = total - power * (number_ / (2 * k))
        power = power * square
    above = total - shift
    fraction = (x - b.floor(x)) * math.pi
    below = above - math.pi * b.div(b.cos(fraction), b.sin(fraction))
    result = b.where(low, below, above)
    whole = b.logical_and(b.equal(x, b.floor(x)), b.less(x, number(n, 0)))
    result = b.where(whole, number(n, math.nan), result)
    zero = b.equal(x, number(n, 0))
    return b.where(zero, b.neg(b.reciprocal(x)), result)


@converts("digamma", "special_digamma", "special_psi")
def digamma(n: Node) -> Value:
    return done(n, digamma_of(n, real(n, "self")))


def hurwitz(n: Node, s: Value, q: Value) -> Value:
    """ζ(s, q) by the sum of Euler and Maclaurin."""
    b, terms = n.builder, 12
    total: Value | None = None
    for k in range(terms):
        term = b.pow(q + float(k), b.neg(s))
        total = term if total is None else total + term
    far = q + float(terms)
    assert total is not None
    total = total + b.div(b.pow(far, number(n, 1) - s), s - 1.0) + b.pow(far, b.neg(s)) * 0.5
    factor, power = s, b.pow(far, b.neg(s) - 1.0)
    square = b.reciprocal(far * far)
    for k, number_ in enumerate(_BERNOULLI, 1):
        total = total + factor * power * (number_ / math.factorial(2 * k))
        factor = factor * (s + float(2 * k - 1)) * (s + float(2 * k))
        power = power * square
    whole = b.equal(q, b.floor(q))
    low = b.less_equal(q, number(n, 0))
    odd = b.not_equal(s, b.floor(s))
    total = b.where(b.logical_and(low, odd), number(n, math.nan), total)
    total = b.where(b.logical_and(low, whole), number(n, math.inf), total)
    total = b.where(b.less(s, number(n, 1)), number(n, math.nan), total)
    return b.where(b.equal(s, number(n, 1)), number(n, math.inf), total)


@converts("special_zeta")
def zeta(n: Node) -> Value:
    return done(n, hurwitz(n, real(n, "self"), real(n, "other")))


@converts("polygamma", "special_polygamma")
def polygamma(n: Node) -> Value:
    order, x = int(n["n"]), real(n, "self")
    if order == 0:
        return done(n, digamma_of(n, x))
    factor = (-1) ** (order + 1) * float(math.factorial(order))
    return done(n, hurwitz(n, number(n, order + 1), x) * factor)


def lower_gamma(n: Node, a: Value, x: Value) -> Value:
    """P(a, x) by its series, whose terms are all positive."""
    b, terms = n.builder, 400
    rank = max(a.ndim, x.ndim)
    steps = n.builder.constant(np.arange(1.0, terms))
    wide, base = b.unsqueeze(x, axes=[x.ndim]), b.unsqueeze(a, axes=[a.ndim])
    ratios = b.div(wide, base + steps)
    total = b.sum(b.cumprod(ratios, axis=rank), axes=[rank]) + 1.0
    front = b.exp(a * b.log(x) - x - log_gamma(n, a + 1.0))
    result = b.minimum(front * total, number(n, 1))
    result = b.where(b.equal(x, number(n, 0)), number(n, 0), result)
    # Far out the result is 1, however long the series would have to be.
    beyond = b.greater(x, b.maximum(a * 2.0, number(n, 300)))
    result = b.where(beyond, number(n, 1), result)
    result = b.where(b.equal(a, number(n, 0)), number(n, 1), result)
    bad = b.logical_or(b.less(x, number(n, 0)), b.less(a, number(n, 0)))
    both = b.logical_and(b.equal(a, number(n, 0)), b.equal(x, number(n, 0)))
    return b.where(b.logical_or(bad, both), number(n, math.nan), result)


@converts("igamma", "igammac", "special_gammainc", "special_gammaincc")
def igamma(n: Node) -> Value:
    lower = lower_gamma(n, real(n, "self"), real(n, "other"))
    is_upper = n.op.partition(".")[0] in ("igammac", "special_gammaincc")
    return done(n, 1.0 - lower if is_upper else lower)


# ---- error functions ----------------------------------------------------------------------------


@converts("erfinv", "special_erfinv")
def erfinv(n: Node) -> Value:
    return done(n, inverse_error(n, real(n, "self")))


def inverse_error(n: Node, x: Value) -> Value:
    """The number whose error function is x: a closed approximation, then Newton's steps."""
    b = n.builder
    a = 0.147
    log = b.log(1.0 - x * x)
    half = log * 0.5 + 2 / (math.pi * a)
    guess = b.sqrt(b.sqrt(half * half - log / a) - half)
    y = b.where(b.less(x, number(n, 0)), b.neg(guess), guess)
    for _ in range(3):
        slope = b.exp(b.neg(y * y)) * (2 / math.sqrt(math.pi))
        step = b.div(b.erf(y) - x, slope)
        y = y - b.div(step, step * y + 1.0)
    size = b.abs(x)
    one = number(n, 1)
    edge = b.where(b.greater(x, number(n, 0)), number(n, math.inf), number(n, -math.inf))
    y = b.where(b.equal(size, one), edge, y)
    return b.where(b.greater(size, one), number(n, math.nan), y)


@converts("special_ndtri")
def ndtri(n: Node) -> Value:
    x = real(n, "self")
    return done(n, inverse_error(n, x * 2.0 - 1.0) * math.sqrt(2))


@converts("special_erfcx")
def erfcx(n: Node) -> Value:
    """exp(x²) · erfc(x), by the integral of exp(-t² - 2xt)."""
    x, b = real(n, "self"), n.builder
    size = b.abs(x)
    span = b.div(number(n, 40), size * 2.0 + 6.0)

    def integrand(t: Value) -> Value:
        wide = b.unsqueeze(size, axes=[size.ndim])
        return b.exp(b.neg(t * t) - wide * t * 2.0)

    above = quadrature(n, span, integrand) * (2 / math.sqrt(math.pi))
    below = b.exp(x * x) * 2.0 - above
    result = b.where(b.less(x, number(n, 0)), below, above)
    return done(n, result)


def quadrature(
    n: Node, span: Value, integrand: Callable[[Value], Value], nodes: int = 160
) -> Value:
    """The integral from 0 to `span`, by Gauss and Legendre; `integrand` gets one more axis."""
    places, weights = np.polynomial.legendre.leggauss(nodes)
    b = n.builder
    wide = b.unsqueeze(span, axes=[span.ndim])
    values = integrand(b.mul(wide, b.constant((places + 1) / 2)))
    total = b.sum(b.mul(values, b.constant(weights / 2)), axes=[span.ndim])
    return b.mul(total, span)


# ---- polynomials --------------------------------------------------------------------------------

_CHEBYSHEV: Final = ("t", "u", "v", "w")


@converts(*(f"special_chebyshev_polynomial_{k}" for k in _CHEBYSHEV))
@converts(*(f"special_shifted_chebyshev_polynomial_{k}" for k in _CHEBYSHEV))
def chebyshev(n: Node) -> Value:
    x, order, kind = real(n, "x"), real(n, "n"), n.op.partition(".")[0][-1]
    if "shifted" in n.op:
        x = x * 2.0 - 1.0
    return done(n, _chebyshev(n, kind, x, n.builder.trunc(order)))


def _chebyshev(n: Node, kind: str, x: Value, order: Value) -> Value:
    b, one, zero = n.builder, number(n, 1), number(n, 0)
    size = b.abs(x)
    inside = b.less(size, one)
    angle = b.acos(b.where(inside, x, zero))
    # Beyond 1 cosines are hyperbolic; numbers below -1 differ by a sign, V and W change roles.
    arc = b.acosh(b.maximum(size, one))
    odd = b.not_equal(b.mod(order, number(n, 2)), zero)
    negative = b.less(x, zero)
    sign = b.where(b.logical_and(negative, odd), number(n, -1), one)
    half = order + 0.5
    if kind == "t":
        near, far, edge = b.cos(order * angle), b.cosh(order * arc), one
    elif kind == "u":
        near = b.div(b.sin((order + 1.0) * angle), b.sin(angle))
        far, edge = b.div(b.sinh((order + 1.0) * arc), b.sinh(arc)), order + 1.0
    else:
        v = b.div(b.cosh(half * arc), b.cosh(arc * 0.5))
        w = b.div(b.sinh(half * arc), b.sinh(arc * 0.5))
        twice = order * 2.0 + 1.0
        if kind == "v":
            near = b.div(b.cos(half * angle), b.cos(angle * 0.5))
            far, edge = b.where(negative, w, v), b.where(negative, twice, one)
        else:
            near = b.div(b.sin(half * angle), b.sin(angle * 0.5))
            far, edge = b.where(negative, v, w), b.where(negative, one, twice)
    beyond = b.where(b.equal(size, one), edge, far) * sign
    result = b.where(inside, near, beyond)
    return b.where(b.less(order, zero), zero, result)


#: Order k + 1 from the two before: (factor of x, constant, factor of the last but one) by k.
_RECURRENCES: Final[dict[str, Callable[[Value], tuple[Any, Any, Any]]]] = {
    "hermite_polynomial_h": lambda k: (2.0, 0.0, k * 2.0),
    "hermite_polynomial_he": lambda k: (1.0, 0.0, k),
    "laguerre_polynomial_l": lambda k: (
        -1.0 / (k + 1.0),
        (k * 2.0 + 1.0) / (k + 1.0),
        k / (k + 1.0),
    ),
    "legendre_polynomial_p": lambda k: ((k * 2.0 + 1.0) / (k + 1.0), 0.0, k / (k + 1.0)),
}
_FIRST: Final[dict[str, tuple[float, float]]] = {
    "hermite_polynomial_h": (2.0, 0.0),
    "hermite_polynomial_he": (1.0, 0.0),
    "laguerre_polynomial_l": (-1.0, 1.0),
    "legendre_polynomial_p": (1.0, 0.0),
}


@converts(*(f"special_{name}" for name in _RECURRENCES))
def recurrent_polynomial(n: Node) -> Value:
    """By the recurrence over the order, in a loop up to the greatest one."""
    b, name = n.builder, n.op.partition(".")[0].removeprefix("special_")
    x, order = real(n, "x"), b.trunc(real(n, "n"))
    shape = n.shape
    x, order = n.expanded(x, shape), n.expanded(order, shape)
    slope, start = _FIRST[name]
    zero, one = number(n, 0), number(n, 1)
    first = n.expanded(one, shape)
    second = x * slope + start
    result = b.where(b.less_equal(order, zero), first, second)
    flat = b.concat(b.reshape(order, shape=[-1]), b.constant(np.ones(1)), axis=0)
    most = b.minimum(b.max(flat, axes=[0]), number(n, 1024))
    count = b.cast(b.maximum(most - 1.0, zero), dtype="int64")

    def step(i: Value, old: Value, new: Value, found: Value) -> Any:
        k = n.cast(i, "float64") + 1.0
        factor, constant, last = _RECURRENCES[name](k)
        following = b.mul(x * factor + constant, new) - b.mul(old, last)
        reached = b.equal(order, k + 1.0)
        return new, following, b.where(reached, following, found)

    result = b.loop(count, [first, second, result], step)[2]
    return done(n, b.where(b.less(order, zero), zero, result))


# ---- numbers as bits ----------------------------------------------------------------------------


@converts("nextafter")
def nextafter(n: Node) -> Value:
    b = n.builder
    x, y = n.operands("self", "other", dtype=n.dtype)
    kind = f"int{x.dtype.bits}"
    zero = n.like(0, x)
    bits = b.bitcast(x, dtype=kind)
    one = n.like(1, bits)
    upwards = b.equal(b.less(x, y), b.greater(x, zero))
    moved = b.bitcast(b.where(upwards, b.add(bits, one), b.sub(bits, one)), dtype=x.dtype)
    tiny = b.bitcast(one, dtype=x.dtype)
    moved = b.where(b.equal(x, zero), b.where(b.greater(y, zero), tiny, b.neg(tiny)), moved)
    moved = b.where(b.equal(x, y), y, moved)
    bad = b.logical_or(b.isnan(x), b.isnan(y))
    return b.where(bad, n.like(math.nan, x), moved)


@converts("frexp")
def frexp(n: Node) -> list[Value]:
    x, b = n.tensor("self"), n.builder
    wide = n.cast(x, "float64")
    size = b.abs(wide)
    finite = b.logical_and(b.isfinite(wide), b.greater(size, number(n, 0)))
    exponent = b.floor(b.log2(b.where(finite, size, number(n, 1)))) + 1.0
    mantissa = b.mul(wide, b.exp2(b.neg(exponent)))
    # The logarithm may be rounded across a power of two.
    one, half = number(n, 1), number(n, 0.5)
    high, low = b.greater_equal(b.abs(mantissa), one), b.less(b.abs(mantissa), half)
    mantissa = b.where(high, mantissa * 0.5, b.where(low, mantissa * 2.0, mantissa))
    exponent = b.where(high, exponent + 1.0, b.where(low, exponent - 1.0, exponent))
    mantissa = b.where(finite, mantissa, wide)
    exponent = b.where(finite, exponent, number(n, 0))
    return [n.cast(mantissa, x.dtype), n.cast(exponent, "int32")]


@converts("ldexp")
def ldexp(n: Node) -> Value:
    x, power = real(n, "self"), real(n, "other")
    return done(n, n.builder.mul(x, n.builder.exp2(power)))


@converts("gcd", "lcm")
def gcd(n: Node) -> Value:
    """Euclid's algorithm on all elements until none is left."""
    b = n.builder
    first, second = (n.expanded(v, n.shape) for v in n.operands("self", "other", dtype=n.dtype))
    zero = n.like(0, first)

    def left(y: Value) -> Value:
        axes = list(range(y.ndim))
        some = b.not_equal(y, zero)
        return b.any(some, axes=axes) if axes else some

    def step(_: Value, x: Value, y: Value) -> Any:
        safe = b.where(b.equal(y, zero), n.like(1, y), y)
        rest = b.where(b.equal(y, zero), zero, b.mod(x, safe))
        x = b.where(b.equal(y, zero), x, y)
        return left(rest), [x, rest], []

    x, y = b.abs(first), b.abs(second)
    divisor = b.loop(None, [x, y], step, condition=left(y))[0]
    if n.op.startswith("gcd"):
        return divisor
    safe = b.where(b.equal(divisor, zero), n.like(1, x), divisor)
    return b.abs(b.mul(b.div(first, safe), second))
