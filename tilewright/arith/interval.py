"""Constant intervals of integers, inclusive at both ends; None stands for no bound."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from tilewright.ir import DType


class Interval(NamedTuple):
    """The integers from `low` to `high`."""

    low: int | None = None
    high: int | None = None

    @staticmethod
    def of_type(dtype: DType) -> Interval:
        """The values that this type can hold; the index type counts as unbounded."""
        if dtype.is_bool:
            return Interval(0, 1)
        if not dtype.is_integer or is_index(dtype):
            return EVERYTHING
        return Interval(int(dtype.min_value), int(dtype.max_value))

    @property
    def is_point(self) -> bool:
        return self.low is not None and self.low == self.high

    @property
    def is_empty(self) -> bool:
        return self.low is not None and self.high is not None and self.low > self.high

    def within(self, other: Interval) -> bool:
        """Does `other` contain all of this one?"""
        low_fits = other.low is None or (self.low is not None and self.low >= other.low)
        high_fits = other.high is None or (self.high is not None and self.high <= other.high)
        return low_fits and high_fits

    def lies_in(self, low: int, high: int) -> bool:
        return (
            self.low is not None and self.high is not None and low <= self.low <= self.high <= high
        )

    def intersect(self, other: Interval) -> Interval:
        if other is EVERYTHING:
            return self
        return Interval(
            _present(max, self.low, other.low),
            _present(min, self.high, other.high),
        )

    def union(self, other: Interval) -> Interval:
        return Interval(_both(min, self.low, other.low), _both(max, self.high, other.high))

    def __neg__(self) -> Interval:
        return self.scaled(-1)

    def scaled(self, factor: int) -> Interval:
        if factor == 0:
            return Interval(0, 0)
        low = None if self.low is None else self.low * factor
        high = None if self.high is None else self.high * factor
        return Interval(low, high) if factor > 0 else Interval(high, low)

    def shifted(self, by: int) -> Interval:
        return Interval(
            None if self.low is None else self.low + by,
            None if self.high is None else self.high + by,
        )

    def plus(self, other: Interval) -> Interval:
        return Interval(
            None if self.low is None or other.low is None else self.low + other.low,
            None if self.high is None or other.high is None else self.high + other.high,
        )

    def times(self, other: Interval) -> Interval:
        if self.low is not None and self.low >= 0 and other.low is not None and other.low >= 0:
            low, high = self.low * other.low, None
            if self.high is not None and other.high is not None:
                high = self.high * other.high
            elif self.high == 0 or other.high == 0:
                high = 0
            return Interval(low, high)
        products = [_product(a, b) for a in _ends(self) for b in _ends(other)]
        low, high = min(products), max(products)
        return Interval(_finite(low), _finite(high))

    def floordiv(self, other: Interval) -> Interval:
        """Quotients rounded down, by anything but zero (whose quotient, 0, is added)."""
        parts: list[Interval] = []
        if other.high is None or other.high > 0:
            parts.append(_divide(self, max(other.low or 1, 1), other.high))
        if other.low is None or other.low < 0:
            magnitude = None if other.low is None else -other.low
            smallest = max(-other.high, 1) if other.high is not None else 1
            parts.append(_divide(-self, smallest, magnitude))
        if other.contains(0):
            parts.append(Interval(0, 0))
        return union_of(parts)

    def floormod(self, other: Interval) -> Interval:
        """Remainders with the sign of the divisor; 0 for a zero divisor."""
        high = None if other.high is None else max(other.high - 1, 0)
        low = None if other.low is None else min(other.low + 1, 0)
        result = Interval(low, high)
        positive = other.low is not None and other.low > 0
        if positive and self.low is not None and self.low >= 0:
            return result.intersect(Interval(0, self.high))
        return result

    def contains(self, value: int) -> bool:
        return (self.low is None or self.low <= value) and (self.high is None or value <= self.high)

    def lesser(self, other: Interval) -> Interval:
        """The interval of min(a, b)."""
        return Interval(_both(min, self.low, other.low), _present(min, self.high, other.high))

    def greater(self, other: Interval) -> Interval:
        """The interval of max(a, b)."""
        return Interval(_present(max, self.low, other.low), _both(max, self.high, other.high))


EVERYTHING = Interval(None, None)
TRUTH = Interval(0, 1)
_INFINITY = float("inf")


def is_index(dtype: DType) -> bool:
    """Is it the type of indices, whose arithmetic is assumed not to overflow?"""
    return dtype.kind == "int" and dtype.bits == 64


def union_of(parts: Iterable[Interval]) -> Interval:
    parts = iter(parts)
    result = next(parts, Interval(0, 0))
    for part in parts:
        result = result.union(part)
    return result


def wrapped(interval: Interval, dtype: DType) -> Interval:
    """The values of `interval`, wrapped around to the width of `dtype`."""
    if is_index(dtype) or not dtype.is_integer:
        return interval
    whole = Interval.of_type(dtype)
    if interval.low is None or interval.high is None:
        return whole
    low = wrap(interval.low, dtype)
    moved = Interval(low, low + interval.high - interval.low)
    return moved if moved.within(whole) else whole


def wrap(value: int, dtype: DType) -> int:
    """`value`, wrapped around to the width of `dtype`."""
    bits = value & ((1 << dtype.bits) - 1)
    negative = dtype.kind == "int" and bits >> (dtype.bits - 1)
    return bits - (1 << dtype.bits) if negative else bits


def wrap_signed(value: int, dtype: DType) -> int:
    """The number nearest to zero that is congruent to `value` at the width of `dtype`."""
    bits = value & ((1 << dtype.bits) - 1)
    return bits - (1 << dtype.bits) if bits >> (dtype.bits - 1) else bits


def _present(pick: Callable[[int, int], int], a: int | None, b: int | None) -> int | None:
    if a is None or b is None:
        return b if a is None else a
    return pick(a, b)


def _both(pick: Callable[[int, int], int], a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else pick(a, b)


def _ends(interval: Interval) -> tuple[float, float]:
    return (
        -_INFINITY if interval.low is None else interval.low,
        _INFINITY if interval.high is None else interval.high,
    )


def _product(a: float, b: float) -> float:
    # Zero times "no bound" is still zero: every member of the interval is finite.
    return 0 if a == 0 or b == 0 else a * b


def _finite(end: float) -> int | None:
    return None if end in (_INFINITY, -_INFINITY) else int(end)


def _divide(a: Interval, smallest: int, largest: int | None) -> Interval:
    """a // d for d from `smallest` (> 0) to `largest`."""
    return Interval(
        _quotient(a.low, smallest, largest, down=True),
        _quotient(a.high, smallest, largest, down=False),
    )


def _quotient(end: int | None, smallest: int, largest: int | None, down: bool) -> int | None:
    if end is None:
        return None
    # The extreme quotient comes from the least divisor when it is away from zero.
    away = end < 0 if down else end > 0
    if away:
        return end // smallest
    if largest is None:
        return 0 if end >= 0 else -1
    return end // largest
