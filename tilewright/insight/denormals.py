"""Finds denormal constants, which code that flushes denormals treats as zeros."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tilewright.graph import Array, Module
from tilewright.models.constants import constants_of

#: The types that are flushed; others are computed in these, in which their numbers are normal.
_FLUSHED = (np.float32, np.float64)


class DenormalConstant(NamedTuple):
    """A constant, and the number of its denormal elements."""

    name: str
    elements: int
    size: int

    def __str__(self) -> str:
        return f"{self.name}: {self.elements} of {self.size} elements"


def denormal_constants(module: Module) -> list[DenormalConstant]:
    """The constants of a graph with denormal elements."""
    arrays = {id(v.constant): (v.name, v.constant) for v in constants_of(module)}
    counted = [(n, _count(a), a.size) for n, a in arrays.values() if a is not None]
    return [DenormalConstant(*row) for row in counted if row[1]]


def _count(array: Array) -> int:
    if array.dtype not in _FLUSHED:
        return 0
    # By bits: this thread may itself flush denormals.
    bits = np.ascontiguousarray(array).view(f"u{array.itemsize}")
    sign = 1 << (8 * array.itemsize - 1)
    magnitude = bits & bits.dtype.type(sign - 1)
    least = np.finfo(array.dtype).tiny.view(bits.dtype)
    return int(np.count_nonzero((magnitude > 0) & (magnitude < least)))
