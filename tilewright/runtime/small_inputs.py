"""Small inputs are copied into memory of our own: that is sooner done than finding where they lie.

All of them are joined and copied at once, so that a model with many states pays little for each.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from operator import attrgetter, itemgetter
from typing import Any, Final, cast

import numpy as np

from tilewright.runtime.arrays import Array
from tilewright.runtime.binding import TensorSpec
from tilewright.runtime.program import Program

#: Bytes of all inputs and outputs up to which they are copied.
_SMALL: Final = 16 << 10
#: What an array needs to have for its bytes to be copied as they are.
_KIND: Final = attrgetter("__class__", "dtype", "shape")
_Plain = tuple[np.dtype[Any], tuple[int, ...]]


class SmallInputs:
    """The inputs of a program that are copied: which they are, and memory for one call."""

    def __init__(self, names: Sequence[str], plain: Sequence[_Plain]) -> None:
        self._kinds = [(np.ndarray, dtype, shape) for dtype, shape in plain]
        self._count = len(names)
        self._by_name = _values_of(names)
        sizes = [dtype.itemsize * math.prod(shape) for dtype, shape in plain]
        self._starts = [sum(sizes[:k]) for k in range(self._count)]
        self._size = sum(sizes)
        #: Whether inputs that follow each other without gaps lie as their elements need it.
        self._are_joined = all(
            start % dtype.itemsize == 0 and _has_plain_bytes(dtype)
            for start, (dtype, _) in zip(self._starts, plain, strict=True)
        )

    def taken(self, inputs: Any) -> Sequence[Array] | None:
        """The inputs in order, where all are arrays of these types and shapes; others are looked at
        more closely elsewhere."""
        given, container = inputs, cast("Any", type(inputs))
        try:
            if container is dict and len(given) == self._count:
                given = self._by_name(given)
            elif container is not tuple and container is not list:
                return None
            return given if [*map(_KIND, given)] == self._kinds else None
        except (AttributeError, KeyError):
            return None

    def arrays(self) -> list[Array]:
        """Memory for one call, which `copy_to` fills."""
        if not self._are_joined:
            return [np.empty(shape, dtype) for _, dtype, shape in self._kinds]
        memory = np.empty(self._size, np.uint8)
        places = zip(self._kinds, self._starts, strict=True)
        return [np.ndarray(shape, dtype, memory, start) for (_, dtype, shape), start in places]

    def copy_to(self, own: Sequence[Any], inputs: Sequence[Any]) -> None:
        """Copy inputs into arrays that `arrays` made."""
        if self._are_joined:
            try:
                own[0].base.data[:] = b"".join(inputs)
                return
            except (BufferError, TypeError, ValueError):
                pass  # with gaps between its elements, an array has no bytes in a row
        for mine, given in zip(own, inputs, strict=True):
            mine[...] = given


def _values_of(names: Sequence[str]) -> Callable[[Any], Sequence[Any]]:
    """What takes the values of these names out of a dictionary."""
    if len(names) > 1:
        return itemgetter(*names)
    # An itemgetter of a single name gives a value that is no tuple.
    (name,) = names
    return lambda given: (given[name],)


def small_inputs(program: Program) -> SmallInputs | None:
    """Those of a program, where they and all outputs are small, of known sizes."""
    specs = (*program.inputs, *program.outputs)
    tensors = [s for s in specs if isinstance(s, TensorSpec) and s.static_shape is not None]
    if len(tensors) != len(specs) or program.dims or program.records or not program.inputs:
        return None
    plain = [(s.numpy, s.static_shape or ()) for s in tensors]
    total = sum(dtype.itemsize * math.prod(shape) for dtype, shape in plain)
    names = [s.name for s in program.inputs]
    return SmallInputs(names, plain[: len(names)]) if total <= _SMALL else None


def _has_plain_bytes(dtype: np.dtype[Any]) -> bool:
    """Whether arrays of a type give their memory to others: some types are NumPy's by extension."""
    try:
        memoryview(cast("Any", np.empty(1, dtype)))
    except (BufferError, ValueError):
        return False
    return True
