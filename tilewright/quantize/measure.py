"""The error of one model beside another, over batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from tilewright.graph import Array
from tilewright.insight.errors import ErrorMeter
from tilewright.quantize.observe import Batch

#: Runs a model.
Run = Callable[[Batch], Sequence[Any]]
#: Above the mean, of errors which nearly all samples are within.
_DEVIATIONS: Final = 4.0
#: Errors below this are taken for it.
_LEAST: Final = 1e-12


class Error(NamedTuple):
    """How far outputs are off: that of them which is the worst."""

    #: The largest error of any sample, relative to its largest value: `tilewright compare` tells
    #: the same of this sample, and no more of any number of them together.
    relative: float
    #: Signal over noise in decibels, over all samples.
    sqnr: float
    #: What samples that were not seen may come to.
    expected: float


def error_of(ours: Run, theirs: Run, samples: Iterable[Batch]) -> Error:
    """The error of one model beside the other, over samples that come one by one."""
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
    """What one of some thousand samples comes to, if errors are spread as those that were seen.

    Errors of samples are spread about evenly over their logarithm: the largest of many lies far
    above the mean.
    """
    seen = np.log(np.maximum(errors, _LEAST))
    usual = float(np.exp(seen.mean() + _DEVIATIONS * seen.std()))
    return max(usual, float(errors.max())) if errors.any() else 0.0
