"""The error of a model against a reference, over batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from tilewright.graph import Array
from tilewright.insight.errors import ErrorMeter
from tilewright.quantize.observe import Batch

#: Runs a model.
Run = Callable[[Batch], Sequence[Any]]
#: Standard deviations above the mean (of log errors) that nearly all samples stay within.
_DEVIATIONS: Final = 4.0
#: Lower bound for the logarithm of errors.
_LEAST: Final = 1e-12


class Error(NamedTuple):
    """The error of outputs: that of the worst output."""

    #: The largest error of any sample, relative to its largest value: `tilewright compare` reports
    #: the same for that sample, and at most that for several samples together.
    relative: float
    #: Signal over noise in decibels, over all samples.
    sqnr: float
    #: An estimate for unseen samples.
    expected: float


def error_of(ours: Run, theirs: Run, samples: Iterable[Batch]) -> Error:
    """The error of one model against another, over single samples."""
    meters: list[ErrorMeter] = []
    found: list[float] = []
    for sample in samples:
        a, b = ours(sample), theirs(sample)
        meters = meters or [ErrorMeter() for _ in b]
        found.append(max(_relative(x, y) for x, y in zip(a, b, strict=True)))
        for meter, x, y in zip(meters, a, b, strict=True):
            meter.add(x, y)
    return Error(max(found), min(m.sqnr for m in meters), _expected(np.array(found)))


def _relative(ours: Any, theirs: Any) -> float:
    meter = ErrorMeter()
    meter.add(ours, theirs)
    return meter.relative


def _expected(errors: Array) -> float:
    """An estimate of the largest error in some thousand samples, from those that were seen.

    Errors of samples are roughly log-normal: the largest of many is far above the mean.
    """
    seen = np.log(np.maximum(errors, _LEAST))
    usual = float(np.exp(seen.mean() + _DEVIATIONS * seen.std()))
    return max(usual, float(errors.max())) if errors.any() else 0.0
