"""Whether a candidate computes what the default schedule does, up to the order of sums."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.support.dtype import DType

Array = np.ndarray[Any, Any]


def why_wrong(expected: Sequence[Array], got: Sequence[Array]) -> str:
    """In which result, and by how much, answers differ; empty where they agree."""
    for number, (a, b) in enumerate(zip(expected, got, strict=True)):
        if reason := _difference(a, b):
            return f"result {number} {reason}"
    return ""


def _difference(expected: Array, got: Array) -> str:
    if not DType.of(expected.dtype.name).is_float:
        wrong = int(np.count_nonzero(expected != got))
        return f"differs in {wrong} of {expected.size} elements" if wrong else ""
    a, b = expected.astype(np.float64), got.astype(np.float64)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    # Sums in another order differ relative to their terms, not relative to their result.
    finite = a[np.isfinite(a)]
    scale = float(np.sqrt(np.mean(finite**2))) if finite.size else 0.0
    with np.errstate(invalid="ignore"):
        near = np.isfinite(a) & np.isfinite(b)
        near &= np.abs(a - b) <= _tolerance(expected) * (np.abs(a) + scale)
    wrong = int(np.count_nonzero(~(same | near)))
    return f"differs in {wrong} of {a.size} elements" if wrong else ""


def _tolerance(array: Array) -> float:
    """A few hundred units in the last place, and no more than a hundredth."""
    import ml_dtypes

    digits = int(ml_dtypes.finfo(array.dtype).nmant)  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
    return min(1e-2, 2.0 ** (9 - digits))
