"""The error of tensors against their expected values."""

from __future__ import annotations

from math import inf, log10
from typing import Any

import numpy as np

#: Lower bound for magnitudes that errors are divided by.
_LEAST = 1e-30


class ErrorMeter:
    """The error of one tensor over any number of batches, in constant memory."""

    def __init__(self) -> None:
        #: The largest error and value, and the sums of squares of both.
        self._off = 0.0
        self._greatest: float | None = None
        self._noise = self._signal = 0.0

    def add(self, ours: Any, theirs: Any) -> int:
        """Add a batch's actual and expected values; gives the index of the largest error."""
        a, b = np.asarray(ours), np.asarray(theirs)
        if not a.size:
            return 0
        x, y = a.astype(np.float64).ravel(), b.astype(np.float64).ravel()
        with np.errstate(all="ignore"):
            off = np.abs(x - y)
        off[(x == y) | (np.isnan(x) & np.isnan(y))] = 0.0
        off[np.isnan(off)] = np.inf
        finite = y[np.isfinite(y)]
        if finite.size:
            self._greatest = max(self._greatest or 0.0, float(np.abs(finite).max()))
        self._signal += float(np.square(finite).sum())
        self._noise += float(np.square(off).sum())
        where = int(off.argmax())
        self._off = max(self._off, float(off[where]))
        return where

    @property
    def relative(self) -> float:
        """The largest error relative to the largest value."""
        return self._off / (1.0 if self._greatest is None else max(self._greatest, _LEAST))

    @property
    def sqnr(self) -> float:
        """The signal-to-noise ratio in decibels; infinite without noise."""
        if not self._noise:
            return inf
        if self._noise == inf:
            return -inf
        return 10 * log10(max(self._signal, _LEAST) / self._noise)
