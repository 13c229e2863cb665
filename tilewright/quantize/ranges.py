"""Chooses the range of values that the bytes of a tensor represent, from a histogram.

minmax        all values seen
percentile    all but the outermost 0.01 % (`percentile=`)
mse           the range with the least expected squared error of rounding and clipping
entropy       the range whose bytes lose the least information (Kullback–Leibler divergence)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np

from tilewright.quantize.histogram import SIDE, Histogram
from tilewright.support.errors import UserError, nearest

Array = np.ndarray[Any, Any]

#: Candidate fractions of the whole range.
_FRACTIONS: Final = np.linspace(0.1, 1.0, 91)
#: The least scale: smaller ones are denormal, which machines flush to zero.
LEAST: Final = float(np.finfo(np.float32).tiny)


class Scale(NamedTuple):
    """The meaning of bytes: real = (byte - zero) · scale."""

    scale: float
    zero: int
    signed: bool

    @property
    def dtype(self) -> str:
        return "int8" if self.signed else "uint8"

    @property
    def limits(self) -> tuple[int, int]:
        return (-127, 127) if self.signed else (0, 255)


class Calibration(NamedTuple):
    """How ranges are chosen."""

    method: str = "mse"
    symmetric: bool = False
    percentile: float = 99.99


def scale_of(low: float, high: float, symmetric: bool) -> Scale:
    """The scale for a range, which is extended to contain zero: padding must be exact."""
    low, high = min(low, 0.0), max(high, 0.0)
    if symmetric:
        scale = _rounded(max(-low, high) / 127)
        return Scale(scale, 0, True)
    scale = _rounded((high - low) / 255)
    return Scale(scale, int(np.clip(np.rint(-low / scale), 0, 255)), False)


def _rounded(scale: float) -> float:
    """A scale rounded to float32; 1 for a range of only zero."""
    return float(np.float32(scale)) if scale >= LEAST else 1.0


def chosen_scale(histogram: Histogram, how: Calibration) -> Scale:
    """The scale for a histogram."""
    low, high = METHODS[how.method](histogram, how)
    return scale_of(low, high, how.symmetric)


def require_method(how: Calibration) -> None:
    """Refuse invalid settings."""
    if how.method not in METHODS:
        raise UserError(
            f"there is no calibration method {how.method}", remedy=nearest(how.method, METHODS)
        )
    if not 50 < how.percentile <= 100:
        raise UserError(
            f"percentile is {how.percentile}", remedy="use more than 50, and at most 100"
        )


# ---- methods ------------------------------------------------------------------------------------


def _minmax(histogram: Histogram, how: Calibration) -> tuple[float, float]:
    del how
    return histogram.low, histogram.high


def _percentile(histogram: Histogram, how: Calibration) -> tuple[float, float]:
    total = np.cumsum(histogram.counts)
    outside = (1 - how.percentile / 100) * histogram.count
    edges = np.arange(-SIDE, SIDE + 1) * histogram.width
    low = edges[np.searchsorted(total, outside, side="right")]
    high = edges[np.searchsorted(total, histogram.count - outside) + 1]
    return max(float(low), histogram.low), min(float(high), histogram.high)


def _mse(histogram: Histogram, how: Calibration) -> tuple[float, float]:
    """Shrink both ends together, then each by itself."""
    used = np.flatnonzero(histogram.counts)
    values, counts = histogram.centres[used], histogram.counts[used]
    low, high = histogram.low, histogram.high

    def best(candidates: list[tuple[float, float]]) -> tuple[float, float]:
        return min(candidates, key=lambda ends: _error(values, counts, ends, how.symmetric))

    # Widest first, so that it wins among equal errors.
    widest_first = _FRACTIONS[::-1]
    low, high = best([(low * f, high * f) for f in widest_first])
    if not how.symmetric:
        low, high = best([(low, histogram.high * f) for f in widest_first] + [(low, high)])
        low, high = best([(histogram.low * f, high) for f in widest_first] + [(low, high)])
    return low, high


def _error(values: Array, counts: Array, ends: tuple[float, float], symmetric: bool) -> float:
    return float(np.sum(counts * (simulated(values, scale_of(*ends, symmetric)) - values) ** 2))


def simulated(values: Array, scale: Scale) -> Array:
    """Values after rounding to bytes and back."""
    stored = np.clip(np.rint(values / scale.scale) + scale.zero, *scale.limits)
    return (stored - scale.zero) * scale.scale


def _entropy(histogram: Histogram, how: Calibration) -> tuple[float, float]:
    """A symmetric threshold on both sides of zero."""
    del how
    sizes = histogram.counts[SIDE:] + histogram.counts[:SIDE][::-1]
    # Zeros are exact in any range, and so many that they would dominate all other counts.
    sizes[0] = sizes[1]
    levels = 128 if histogram.low < 0 else 256
    last = int(np.flatnonzero(sizes)[-1]) + 1 if sizes.any() else 1
    ends = [*range(levels, last, max(1, (last - levels) // 200)), max(last, 1)]
    end = min(ends, key=lambda n: _divergence(sizes, n, levels))
    limit = end * histogram.width
    return max(histogram.low, -limit), min(histogram.high, limit)


def _divergence(sizes: Array, end: int, levels: int) -> float:
    """The information lost by `levels` bytes for the first `end` bins, with clipping."""
    inside = sizes[:end].astype(np.float64)
    clipped = inside.copy()
    clipped[-1] += sizes[end:].sum()
    place = np.arange(end) * levels // end
    filled = inside > 0
    sums = np.bincount(place, weights=inside, minlength=levels)
    used = np.bincount(place, weights=filled, minlength=levels)
    spread = np.where(filled, (sums / np.maximum(used, 1))[place], 0)
    p, q = clipped / max(clipped.sum(), 1), spread / max(spread.sum(), 1)
    seen = p > 0
    # Counts in bins that bytes cannot represent are taken as very unlikely.
    return float(np.sum(p[seen] * np.log(p[seen] / np.maximum(q[seen], 1e-9))))


METHODS: Final[dict[str, Callable[[Histogram, Calibration], tuple[float, float]]]] = {
    "minmax": _minmax,
    "percentile": _percentile,
    "mse": _mse,
    "entropy": _entropy,
}
