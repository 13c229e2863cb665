"""Small inputs are copied to memory of our own: that is faster than looking up their addresses.

All of them are joined and copied at once, so that a model with many states pays little for each.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from operator import attrgetter, is_, itemgetter
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np

from tilewright.runtime.arrays import Array
from tilewright.runtime.binding import NativeSpec, TensorSpec
from tilewright.runtime.dlpack import array_of_tensor
from tilewright.runtime.program import Program

if TYPE_CHECKING:
    from tilewright.runtime.call import ModelCall

#: Largest total bytes of inputs and outputs for which inputs are copied.
_SMALL: Final = 16 << 10
#: Largest workspace for which they are, with symbolic sizes: each kept call has a workspace.
_LITTLE: Final = 1 << 20
#: Most shapes of inputs that are remembered, with symbolic sizes.
_KEPT: Final = 16
#: The attributes that must match for an array's bytes to be copied as they are.
_KIND: Final = attrgetter("__class__", "dtype", "shape")
_Plain = tuple[np.dtype[Any], tuple[int, ...]]


class Copies:
    """Memory for inputs of some types and shapes, and bound calls on it that no run uses now."""

    def __init__(self, plain: Sequence[_Plain]) -> None:
        self._plain = plain
        self.ready: list[ModelCall] = []
        sizes = [dtype.itemsize * math.prod(shape) for dtype, shape in plain]
        self._starts = [sum(sizes[:k]) for k in range(len(plain))]
        self._size = sum(sizes)
        #: Whether inputs stored one after the other without gaps are all aligned.
        self._are_joined = all(
            start % dtype.itemsize == 0 and _has_plain_bytes(dtype)
            for start, (dtype, _) in zip(self._starts, plain, strict=True)
        )

    def arrays(self) -> list[Array]:
        """Memory for one call, which `copy_to` fills."""
        if not self._are_joined:
            return [np.empty(shape, dtype) for dtype, shape in self._plain]
        memory = np.empty(self._size, np.uint8)
        places = zip(self._plain, self._starts, strict=True)
        return [np.ndarray(shape, dtype, memory, start) for (dtype, shape), start in places]

    def copy_to(self, own: Sequence[Any], inputs: Sequence[Any]) -> None:
        """Copy inputs into arrays from `arrays`."""
        if self._are_joined:
            try:
                own[0].base.data[:] = b"".join(inputs)
                return
            except (BufferError, TypeError, ValueError):
                pass  # not contiguous
        for mine, given in zip(own, inputs, strict=True):
            mine[...] = given


class SmallInputs:
    """The inputs of a program that are copied: those with the program's static shapes, or, with
    symbolic sizes, those with shapes of earlier runs."""

    def __init__(self, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> None:
        self._count = len(inputs)
        self._by_name = _values_of([s.name for s in inputs])
        self._inputs, self._outputs = [s.numpy for s in inputs], [s.numpy for s in outputs]
        self._copies: dict[tuple[Any, ...], Copies] = {}

    def taken(self, inputs: Any) -> tuple[Sequence[Array], Copies] | None:
        """The inputs in order if all are arrays of known types and shapes; else None."""
        given, container = inputs, cast("Any", type(inputs))
        try:
            if container is dict and len(given) == self._count:
                given = self._by_name(given)
            elif container is not tuple and container is not list:
                return None
            copies = self._copies.get((*map(_KIND, given),))
            if copies is None:
                given = _as_arrays(given)
                copies = self._copies.get((*map(_KIND, given),))
            return copies and (given, copies)
        except (AttributeError, KeyError, TypeError):
            return None

    def learn(self, inputs: Sequence[Any], outputs: Sequence[Any], workspace: int = 0) -> None:
        """Copy inputs of these shapes from now on, if they and the outputs are small."""
        plain = [(t, tuple(shape)) for t, shape in zip(self._inputs, inputs, strict=True)]
        made = [(t, tuple(shape)) for t, shape in zip(self._outputs, outputs, strict=True)]
        size = sum(dtype.itemsize * math.prod(shape) for dtype, shape in (*plain, *made))
        if size > _SMALL or workspace > _LITTLE:
            return
        if len(self._copies) >= _KEPT:
            self._copies.clear()
        self._copies[tuple((np.ndarray, *each) for each in plain)] = Copies(plain)


def _as_arrays(given: Sequence[Any]) -> Sequence[Any]:
    """The inputs, with PyTorch's tensors as arrays; empty if there is no tensor among them."""
    made: list[Any] = [v if isinstance(v, np.ndarray) else array_of_tensor(v) for v in given]
    return () if all(map(is_, made, given)) else made


def _values_of(names: Sequence[str]) -> Callable[[Any], Sequence[Any]]:
    """A function that takes the values of these names from a dictionary."""
    if len(names) > 1:
        return itemgetter(*names)
    # An itemgetter of a single name gives a value that is no tuple.
    (name,) = names
    return lambda given: (given[name],)


def small_inputs(program: Program) -> SmallInputs | None:
    """A program's small inputs, if all are tensors; outputs that the code allocates need not be."""
    inputs = _tensors(program.inputs)
    outputs = _tensors([program.outputs[k] for k in program.direct])
    if inputs is None or outputs is None or not inputs:
        return None
    found, shapes = SmallInputs(inputs, outputs), [s.static_shape for s in (*inputs, *outputs)]
    if None not in shapes and not program.dims:
        found.learn(shapes[: len(inputs)], shapes[len(inputs) :])
    return found


def _tensors(specs: Sequence[NativeSpec]) -> list[TensorSpec] | None:
    """The specs, if all are tensors; else None."""
    tensors = [s for s in specs if isinstance(s, TensorSpec)]
    return tensors if len(tensors) == len(specs) else None


def _has_plain_bytes(dtype: np.dtype[Any]) -> bool:
    """Whether arrays of this type support the buffer protocol; extension types do not."""
    try:
        memoryview(cast("Any", np.empty(1, dtype)))
    except (BufferError, ValueError):
        return False
    return True
