"""Arrays in place of a user's weights, for reproducers of faults.

Arrays that reveal nothing about the user's data stay: a few integers (shapes, axes), and arrays
that hold only zeros or only ones.
"""

from __future__ import annotations

import math
import zlib
from typing import Any, Final, Literal

import numpy as np

Array = np.ndarray[Any, Any]
#: The replacement of weights.
Filling = Literal["random", "zeros"]
FILLINGS: Final[tuple[Filling, ...]] = ("random", "zeros")

#: Up to this many integers may be shapes, axes or indices; more may be weights.
_FEW: Final = 8
#: Types of shapes and axes; narrower ones are those of weights, except for single zero points.
_PLAIN: Final = ("int32", "int64", "bool")
#: Arrays of more elements are not examined, and are only filled with zeros.
_MANY: Final = 1 << 22


def is_kept(array: Array) -> bool:
    """Whether an array is part of the structure, and may be shown."""
    kind = np.dtype(array.dtype)
    limit = _FEW if kind.name in _PLAIN else 1
    is_whole = kind.kind in "iub" or kind.name.startswith(("int", "uint"))
    return array.size == 0 or (is_whole and array.size <= limit) or uniform(array) is not None


def uniform(array: Array) -> int | None:
    """0 or 1, if all elements are equal to it."""
    if array.dtype.kind in "OU" or array.size > _MANY:
        return None
    for value in (0, 1):
        if bool(np.all(array == np.asarray(value).astype(array.dtype))):
            return value
    return None


def stand_in(array: Array, name: str, filling: Filling) -> Array:
    """An array of the same type and shape; the name is the seed of random elements."""
    if is_kept(array):
        return array
    return filled(array.dtype, array.shape, name, filling)


def filled(dtype: np.dtype[Any], shape: tuple[int, ...], name: str, filling: Filling) -> Array:
    """The replacement of an array of this type, shape and name."""
    if dtype.kind in "OU":
        return np.full(shape, "a", object)
    if filling == "zeros" or math.prod(shape) > _MANY:
        return np.zeros(shape, dtype)
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    if dtype.kind in "fc" or "float" in dtype.name:
        # Two digits, so that they are short in text.
        return np.round(rng.standard_normal(shape), 2).astype(dtype)
    return rng.integers(0, 2, shape).astype(dtype)
