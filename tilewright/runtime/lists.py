"""Sequences and optionals as inputs and outputs of a compiled model: Python lists, or None.

In memory both are lists of tensors, in the layout of `codegen.llvm.lists`, words of eight bytes:

    list    references; number of items; capacity; the address of each item
    item    references; the address of its elements; its rank; its dimensions

Inputs refer to the caller's arrays; outputs are copied, and then released.
"""

from __future__ import annotations

import ctypes
import itertools
import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from tilewright.runtime.arrays import Array, address_of, result_empty

_LIST_HEAD: Final = 3
_ITEM_HEAD: Final = 3


class PassedList:
    """Arrays as a list that compiled code can read, for the lifetime of this object.

    None is an optional without a value.
    """

    def __init__(self, arrays: Sequence[Array] | None) -> None:
        self.arrays = () if arrays is None else tuple(arrays)
        #: The shapes that sizes may depend on.
        self.shape = tuple([a.shape for a in self.arrays])
        self.address = 0 if arrays is None else self._laid_out(arrays)

    def _laid_out(self, arrays: Sequence[Array]) -> int:
        count = len(arrays)
        sizes = [_ITEM_HEAD + a.ndim for a in arrays]
        self._words = np.empty(_LIST_HEAD + count + sum(sizes), np.int64)
        address = address_of(self._words)
        starts = itertools.accumulate(sizes, initial=_LIST_HEAD + count)
        words = [1, count, count, *(address + 8 * s for s, _ in zip(starts, sizes, strict=False))]
        for array in arrays:
            words += [1, address_of(array), array.ndim, *array.shape]
        self._words[:] = words
        return address


def copied_items(address: int, dtype: np.dtype[Any]) -> list[Array]:
    """Copies of the tensors in a list."""
    count = _word(address, 1)
    return [_copied(_word(address, _LIST_HEAD + k), dtype) for k in range(count)]


def _copied(item: int, dtype: np.dtype[Any]) -> Array:
    shape = [_word(item, _ITEM_HEAD + axis) for axis in range(_word(item, 2))]
    return copied_elements(_word(item, 1), shape, dtype)


def copied_elements(address: int, shape: Sequence[int], dtype: np.dtype[Any]) -> Array:
    """A new array with a copy of the elements at an address."""
    array = result_empty(shape, dtype)
    ctypes.memmove(address_of(array), address, math.prod(shape) * dtype.itemsize)
    return array


def _word(address: int, number: int) -> int:
    return ctypes.c_int64.from_address(address + 8 * number).value
