"""Histograms whose range grows, for calibration.

The bin width is a power of two, and bins begin at zero. When a larger value is added, the width
doubles and neighbouring bins are merged, so that the counts are those of all values at once, in
whatever batches and order they came.
"""

from __future__ import annotations

from math import frexp, ldexp
from typing import Any, Final

import numpy as np

Array = np.ndarray[Any, Any]
#: Bins on each side of zero.
SIDE: Final = 2048
#: Smaller bin widths would be denormal.
_LEAST: Final = -100


class Histogram:
    """Counts of finite numbers, and their exact range."""

    def __init__(self) -> None:
        self.counts = np.zeros(2 * SIDE, np.int64)
        self.low = self.high = 0.0
        self.count = 0
        self._exponent = _LEAST

    @property
    def width(self) -> float:
        """The width of a bin."""
        return ldexp(1.0, self._exponent) / SIDE

    @property
    def centres(self) -> Array:
        """The middle of each bin."""
        return (np.arange(-SIDE, SIDE) + 0.5) * self.width

    def add(self, values: Array) -> None:
        """Count the elements of an array, which must be finite."""
        if not values.size:
            return
        low, high = float(values.min()), float(values.max())
        first = not self.count
        self.low = low if first else min(low, self.low)
        self.high = high if first else max(high, self.high)
        self._grow(max(abs(low), abs(high)))
        # Division by a power of two is exact.
        places = np.floor(values.ravel() / np.float64(self.width)).astype(np.int64) + SIDE
        self.counts += np.bincount(places, minlength=2 * SIDE)
        self.count += values.size

    def _grow(self, greatest: float) -> None:
        exponent = frexp(greatest)[1]
        doublings = exponent - self._exponent
        if doublings <= 0:
            return
        if self.count:
            joined = (np.arange(-SIDE, SIDE) >> min(doublings, 63)) + SIDE
            # Sums of integers below 2**53 are exact in float64.
            merged = np.bincount(joined, weights=self.counts, minlength=2 * SIDE)
            self.counts = merged.astype(np.int64)
        self._exponent = exponent
