"""An angle reduced to |r| <= pi/4 and a quadrant, exactly, however large it is.

Up to `near_limit` by Cody and Waite's method: |x| - n pi/2 in three steps, by parts of pi/2. The
first step is exact; so is the second wherever so little remains that the third one matters. This
needs fused multiply-adds.

Beyond, by Payne and Hanek's method, in integers: with |x| = m 2**e, only the bits of 2/pi around
position e matter to m 2**e (2/pi) modulo 4. A window of three words is moved there by selects on
the bits of e (constants instead of a table: no gather) and multiplied by m; the top two bits of the
fraction are the quadrant, the rest is the angle.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

from tilewright.ir import Expr, call, cast, reinterpret, select
from tilewright.lower.math.builder import MathBuilder, Pair
from tilewright.lower.math.coefficients import HALF_PI, HALF_PI_REST, TWO_OVER_PI

_TABLE_BITS = 1280
#: Words of the window, plus one for the shift within a word.
_WINDOW = 4
_SMALL = 0.7853981


class ReducedAngle(NamedTuple):
    """|x| = quadrant pi/2 + angle, the quadrant modulo 4 in the low bits of an unsigned integer."""

    angle: Pair
    quadrant: Expr


def near_limit(b: MathBuilder) -> float:
    """The largest angle for the short method."""
    return b.pick(2.0**15, 2.0**25)


def reduce_angle(b: MathBuilder, x: Expr) -> ReducedAngle:
    """Reduce by the method that the builder selects."""
    size = b.abs(x)
    if b.angles == "near":
        return _near(b, size)
    far = _far(b, size)
    if b.angles == "far":
        return far
    # The reduction of an angle must not depend on how large other lanes are.
    is_near, near = size <= near_limit(b), _near(b, size)
    high, low = (select(is_near, a, c) for a, c in zip(near.angle, far.angle, strict=True))
    return ReducedAngle(Pair(high, low), select(is_near, near.quadrant, far.quadrant))


def _near(b: MathBuilder, size: Expr) -> ReducedAngle:
    turns = call("round", size * (1 / HALF_PI.float64[0]))
    rest = size
    for part in (*b.of_type(HALF_PI), *b.of_type(HALF_PI_REST)):
        rest = b.fma(-turns, part, rest)
    quadrant = reinterpret(cast(turns, b.signed), b.unsigned)
    return ReducedAngle(Pair(rest, b.number(0.0)), quadrant)


def _far(b: MathBuilder, size: Expr) -> ReducedAngle:
    high, low = _fraction_of_turn(b, size)
    quarter = b.width - 2
    quadrant = (high + b.whole(1 << (quarter - 1))) >> quarter
    angle = _angle(b, high - (quadrant << quarter), low)
    small, zero = size <= _SMALL, b.number(0.0)
    first = select(size < b.infinity, angle.high, b.nan)
    parts = Pair(select(small, size, first), select(small, zero, angle.low))
    return ReducedAngle(parts, select(small, b.whole(0), quadrant))


def _fraction_of_turn(b: MathBuilder, size: Expr) -> tuple[Expr, Expr]:
    """|x| / (2 pi) modulo 1, as the upper and the lower word of a fraction."""
    bits = b.bits(size)
    below_one = bits < b.whole(b.float_bits(1.0))
    mask = (1 << b.mantissa) - 1
    significand = (bits & b.whole(mask)) | b.whole(mask + 1)
    # One spare bit to the right, for the numbers between pi/4 and 1.
    significand = select(below_one, significand, significand << 1)
    position = select(below_one, b.whole(0), (bits >> b.mantissa) - b.whole(b.bias))
    first, second, third = _window(b, position)
    carry_in = call("mulhi", significand, third)
    low = significand * second + carry_in
    carry = select(low < carry_in, b.whole(1), b.whole(0))
    return significand * first + call("mulhi", significand, second) + carry, low


def _window(b: MathBuilder, position: Expr) -> tuple[Expr, Expr, Expr]:
    """Three words of 2/pi from bit `position` on."""
    words = _shifted_by_words(b, position)
    within = position & b.whole(b.width - 1)
    back = within ^ b.whole(b.width - 1)
    first, second, third = ((a << within) | ((c >> 1) >> back) for a, c in pairwise(words))
    return first, second, third


def _shifted_by_words(b: MathBuilder, position: Expr) -> list[Expr]:
    """The words from position // width on: one select per word and bit of that quotient."""
    steps = (b.bias // b.width).bit_length()
    words = [b.whole(w) for w in _table(b, _WINDOW - 1 + (1 << steps))]
    for step in reversed(range(steps)):
        jump = 1 << step
        far = (position & b.whole(b.width << step)) != b.whole(0)
        kept = range(_WINDOW - 1 + jump)
        words = [
            words[i] if words[i] is words[i + jump] else select(far, words[i + jump], words[i])
            for i in kept
        ]
    return words


def _table(b: MathBuilder, count: int) -> list[int]:
    """2/pi in words, with leading zeros such that the window for 1 <= |x| < 2 begins at bit 0."""
    zeros = b.mantissa + 3
    bits = count * b.width
    number = TWO_OVER_PI >> (_TABLE_BITS + zeros - bits)
    mask = (1 << b.width) - 1
    return [(number >> (bits - b.width * (k + 1))) & mask for k in range(count)]


def _angle(b: MathBuilder, high: Expr, low: Expr) -> Pair:
    """The signed fraction of a quarter turn, in radians.

    The upper word is cut where its upper part still converts exactly; bits lost by cancellation are
    supplied by the lower word.
    """
    spare = b.width - 3 - (b.mantissa + 1)
    signed = reinterpret(high, b.signed)
    lower = signed & ((1 << spare) - 1)
    upper = cast(signed - lower, b.scalar)
    rest = cast(reinterpret(low >> 1, b.signed), b.scalar)
    fraction = b.ordered_sum(upper, b.fma(rest, 2.0 ** (1 - b.width), cast(lower, b.scalar)))
    scale = 2.0 ** (2 - b.width)
    pi_high, pi_low = (b.number(part * scale) for part in b.of_type(HALF_PI))
    angle = b.two_product(fraction.high, pi_high)
    return Pair(angle.high, angle.low + b.fma(fraction.high, pi_low, fraction.low * pi_high))
