"""The logistic function and tanh of 16 bits, as TFLite's integer LSTM computes them.

The kernels use polynomials and divisions in fixed point, whose rounding is part of the result: here
they are computed once for all 65,536 arguments, which gives a table. A number of `bits` integer
bits is stored times 2**(15 - bits).
"""

from __future__ import annotations

from functools import cache
from typing import Final

import numpy as np

from tilewright.graph import Array

_ONE: Final = 32767
#: Factors exp(-2**k) for k from -2 on, stored times 2**31.
_POWERS: Final = (1672461947, 1302514674, 790015084, 290630308, 39332535, 720401, 242)
_EXP_OF_MINUS_EIGHTH: Final = 1895147668
_THIRD: Final = 715827883
#: The first guess of 1 / d for d from 1/2 to 1 is 48/17 - 32/17 · d; with two integer bits.
_FORTY_EIGHT_17TH: Final = 1515870810
_MINUS_THIRTY_TWO_17TH: Final = -1010580540
#: Numbers of more integer bits than this reach below -32, where exp is 0.
_EXP_BITS: Final = 5


@cache
def logistic_table() -> Array:
    """The logistic function of numbers with three integer bits, from the least on."""
    a = _arguments()
    positive = _over_one_plus(_exp(-np.abs(a), 3), minus=False)
    made = np.where(a > 0, positive, _ONE - positive)
    return np.where(a == 0, 1 << 14, made).astype(np.int16)


@cache
def tanh_table(bits: int) -> Array:
    """tanh of numbers with this many integer bits, from the least on."""
    a = _arguments()
    # Twice the number: the same bits, with another integer bit.
    positive = _over_one_plus(_exp(-np.abs(a), bits + 1), minus=True)
    return np.where(a == 0, 0, np.where(a < 0, -positive, positive)).astype(np.int16)


def _arguments() -> Array:
    return np.arange(-32768, 32768, dtype=np.int64)


# ---- fixed point --------------------------------------------------------------------------------


def _narrow(wide: int) -> int:
    """A constant of 32 bits in 16."""
    return int(_shifted_down(np.array(wide, np.int64), 16))


def _shifted_down(x: Array, by: int) -> Array:
    """x / 2**by, rounded with halves away from zero."""
    rest, half = x & ((1 << by) - 1), ((1 << by) - 1) >> 1
    return (x >> by) + (rest > half + (x < 0))


def _shifted_up(x: Array, by: int) -> Array:
    return np.clip(x << by, -32768, _ONE)


def _product(a: Array | int, b: Array | int) -> Array:
    """The high half of twice a product, rounded."""
    wide = np.asarray(a, np.int64) * b
    moved = wide + np.where(wide >= 0, 1 << 14, 1 - (1 << 14))
    return np.minimum(np.where(moved >= 0, moved >> 15, -(-moved >> 15)), _ONE)


def _wrapped(x: Array) -> Array:
    return x.astype(np.int16).astype(np.int64)


# ---- functions ----------------------------------------------------------------------------------


def _exp(a: Array, bits: int) -> Array:
    """exp of numbers that are not positive, with no integer bits."""
    fraction = 15 - bits
    quarter = 1 << (fraction - 2)
    # Between -1/4 and 0; the rest is a sum of powers of two.
    near = (a & (quarter - 1)) - quarter
    result = _exp_near_zero(_shifted_up(near, bits))
    rest = near - a
    for exponent, factor in zip(range(-2, bits), _POWERS, strict=False):
        is_set = (rest & (1 << (fraction + exponent))) != 0
        result = np.where(is_set, _product(result, _narrow(factor)), result)
    if bits > _EXP_BITS:
        result = np.where(a < -(32 << fraction), 0, result)
    return np.where(a == 0, _ONE, result)


def _exp_near_zero(a: Array) -> Array:
    """exp of numbers from -1/4 to 0, by the series around -1/8."""
    x = a + (1 << 12)
    x2 = _product(x, x)
    x3, x4 = _product(x2, x), _product(x2, x2)
    series = _product(_shifted_down(x4, 2) + x3, _narrow(_THIRD)) + x2
    factor = _narrow(_EXP_OF_MINUS_EIGHTH)
    made = factor + _product(_wrapped(x + _shifted_down(series, 1)), factor)
    return np.clip(made, -32768, _ONE)


def _over_one_plus(x: Array, *, minus: bool) -> Array:
    """1 / (1 + x), or (1 - x) / (1 + x), for x from 0 to 1, by Newton's division."""
    half_denominator = (x + _ONE + 1) >> 1
    two_bits_one = 1 << 13
    y = _narrow(_FORTY_EIGHT_17TH) + _product(half_denominator, _narrow(_MINUS_THIRTY_TWO_17TH))
    for _ in range(3):
        missing = two_bits_one - _product(half_denominator, y)
        y = _wrapped(y + _shifted_up(_product(y, missing), 2))
    return _shifted_up(y - two_bits_one, 2) if minus else _shifted_up(y, 1)
