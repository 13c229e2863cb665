"""Builds arithmetic in one floating-point type, scalar or vector, and accesses its bits."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from itertools import zip_longest
from typing import Literal, NamedTuple

import numpy as np

from tilewright.ir import Const, DType, Expr, broadcast, call, reinterpret, select
from tilewright.lower.math.coefficients import ByType, Coefficients, Ratio

#: Polynomials with at most this many terms are evaluated by Horner's rule.
_SHORT = 4


#: How angles are reduced: only up to `reduction.near_limit`, of any size, or each as needed.
Angles = Literal["near", "far", "both"]


class Pair(NamedTuple):
    """An unevaluated sum; `low` is under half a unit in the last place of `high`."""

    high: Expr
    low: Expr


class MathBuilder:
    """Constants, fused operations and bit fields of `dtype`.

    With `fused` the target has fused multiply-add: the low part of a product costs one operation.
    Without it nothing relies on single rounding, and no `fma` is emitted. With `flush`, results
    below the least normal number become zero. With `coarse`, the target has approximate
    reciprocals. `angles` selects the range reduction (`reduction`).
    """

    def __init__(
        self,
        dtype: DType,
        *,
        fused: bool = True,
        flush: bool = True,
        coarse: bool = False,
        angles: Angles = "far",
    ) -> None:
        scalar, layout = dtype.scalar, dtype.float_format
        assert layout is not None
        self.lanes, self.scalar, self.fused, self.flush = dtype.lanes, scalar, fused, flush
        self.angles: Angles = angles
        self.width, self.mantissa, self.bias = scalar.bits, layout.mantissa, layout.bias
        self.signed = DType.of(f"int{scalar.bits}")
        self.unsigned = DType.of(f"uint{scalar.bits}")
        self.is_double = scalar.bits == 64
        self.coarse = coarse and not self.is_double
        self.infinity, self.nan = self.number(float("inf")), self.number(float("nan"))
        self.min_normal = 2.0 ** (1 - self.bias)
        #: Half a unit in the last place of 1: adding less leaves 1 unchanged.
        self.epsilon = 2.0 ** -(self.mantissa + 1)

    # ---- constants ----------------------------------------------------------------------------

    def number(self, value: float) -> Expr:
        return broadcast(Const(value, self.scalar), self.lanes)

    def whole(self, value: int) -> Expr:
        """An unsigned integer as wide as the type."""
        return broadcast(Const(value, self.unsigned), self.lanes)

    def of_type(self, table: ByType) -> Coefficients:
        return getattr(table, self.scalar.name)

    def pick(self, single: float, double: float) -> float:
        """The first for float32, the second for float64."""
        return double if self.is_double else single

    # ---- arithmetic ---------------------------------------------------------------------------

    def fma(self, a: Expr | float, b: Expr | float, c: Expr | float) -> Expr:
        a, b, c = (x if isinstance(x, Expr) else self.number(x) for x in (a, b, c))
        return call("fma", a, b, c) if self.fused else a * b + c

    def polynomial(self, coefficients: Sequence[float | Expr], x: Expr) -> Expr:
        """The constant term first. Long ones by pairs of terms (Estrin's scheme), and so on.

        Shorter dependency chains; and sums of variables need no copies of constants where a
        multiply-add overwrites its addend.
        """
        terms = [c if isinstance(c, Expr) else self.number(c) for c in coefficients]
        while len(terms) > _SHORT:
            pairs = zip_longest(terms[::2], terms[1::2])
            terms = [a if b is None else self.fma(b, x, a) for a, b in pairs]
            x = x * x
        return reduce(lambda total, c: self.fma(total, x, c), reversed(terms))

    def line_and_ratio(self, ratio: Ratio, slope: float, x: Expr) -> Expr:
        """slope x + x P(x²) / Q(x²).

        The slope is that of the chord to the point where the function reaches 1: there the ratio is
        small, and so are its rounding errors. Relies on the last step being fused.
        """
        above, below = (self.polynomial(part, x * x) for part in (ratio.above, ratio.below))
        return self.fma(x, self.moderate_quotient(above, below), x * slope)

    def moderate_quotient(self, above: Expr, below: Expr) -> Expr:
        """above / below, where neither these nor the quotient are tiny or huge."""
        if not (self.coarse and self.fused):
            return above / below
        about = call("coarse_reciprocal", below)
        first = above * about
        return self.fma(self.fma(-first, below, above), about, first)

    def coarse_inverse(self, x: Expr) -> Expr:
        """1 / x within 2**-14, where x is neither tiny nor huge."""
        return call("coarse_reciprocal", x) if self.coarse else self.number(1.0) / x

    def abs(self, x: Expr) -> Expr:
        return call("abs", x)

    def with_sign(self, magnitude: Expr, sign: Expr) -> Expr:
        return call("copysign", magnitude, sign)

    def flushed(self, x: Expr) -> Expr:
        """For results that no operation rounds: zero for denormals where these are flushed."""
        if not self.flush:
            return x
        return select(self.abs(x) < self.min_normal, self.with_sign(self.number(0.0), x), x)

    # ---- sums of two --------------------------------------------------------------------------

    def ordered_sum(self, a: Expr, b: Expr) -> Pair:
        """a + b exactly, where |a| >= |b| or a is 0."""
        total = a + b
        return Pair(total, b - (total - a))

    def two_product(self, a: Expr, b: Expr) -> Pair:
        """a * b exactly."""
        product = a * b
        if self.fused:
            return Pair(product, call("fma", a, b, -product))
        a_high, a_low = self._halves(a)
        b_high, b_low = self._halves(b)
        cross = ((a_high * b_high - product) + a_high * b_low) + a_low * b_high
        return Pair(product, cross + a_low * b_low)

    def _halves(self, a: Expr) -> Pair:
        """`a` split in two by its bits, which unlike Veltkamp's product cannot overflow."""
        keep = (1 << self.width) - (1 << (self.mantissa // 2 + 1))
        high = self.from_bits(self.bits(a) & self.whole(keep))
        return Pair(high, a - high)

    # ---- bits ---------------------------------------------------------------------------------

    def bits(self, x: Expr) -> Expr:
        return reinterpret(x, self.unsigned)

    def from_bits(self, x: Expr) -> Expr:
        return reinterpret(x, self.scalar)

    def float_bits(self, value: float) -> int:
        return int(np.array(value, self.scalar.numpy).view(self.unsigned.numpy))

    def magic(self, offset: int) -> float:
        """Added to a small number, rounds it to an integer n and leaves n + offset in the bits.

        With the exponent's bias as the offset, a shift turns these bits into a power of two.
        """
        return 1.5 * 2.0**self.mantissa + offset

    def power_of_two(self, shifted: Expr) -> Expr:
        """2 ** n, a normal number, from a sum with `magic(bias)`."""
        return self.from_bits(self.bits(shifted) << self.mantissa)

    def halves_of_power(self, shifted: Expr) -> tuple[Expr, Expr]:
        """Two normal numbers whose product is 2 ** n, from a sum with `magic(2 * bias)`.

        2 ** n itself may not be normal. Values between 1/2 and 2 are multiplied by the first one
        exactly, and by the second one with correct under- and overflow.
        """
        both = self.bits(shifted)
        half = both >> 1
        first, second = (self.from_bits(e << self.mantissa) for e in (half, both - half))
        return first, second
