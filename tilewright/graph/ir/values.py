"""Values of a graph: what a binding or a parameter defines, or a constant."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from tilewright.graph.building.operators import ValueOperators
from tilewright.graph.ir.attributes import Array
from tilewright.graph.ir.types import TensorType, Type
from tilewright.ir import Cast, Const, DType, Expr, Var, const, evaluate
from tilewright.support.errors import UserError

#: Largest number of elements of tensors that are followed through shape arithmetic.
KNOWN_LIMIT: Final = 1024
#: Greater elements do not fit int64.
_LARGEST: Final = (1 << 63) - 1
#: Integers of fewer bits may be too narrow for a size.
_BITS_OF_SIZES: Final = 32


class Value(ValueOperators):
    """The value that a binding defines. A constant is a value with an array, without a binding.

    `known` are the elements where they are known at compile time: an array of expressions (over
    int64 for all integers), in which symbolic dimensions may occur. Numbers wrap around as the
    element type does; expressions of dimensions are taken to fit types of 32 bits and more.
    """

    __slots__ = ("_known", "builder", "constant", "name", "type")

    def __init__(self, name: str, type: Type, constant: Array | None = None) -> None:
        self.name, self.type, self.constant = name, type, constant
        self._known: Array | None = None
        #: The builder that emits operators on this value, while the graph is being built.
        self.builder: Any = None

    @property
    def is_constant(self) -> bool:
        return self.constant is not None

    @property
    def tensor(self) -> TensorType:
        """The type, which must be a tensor type."""
        if isinstance(self.type, TensorType):
            return self.type
        raise UserError(f"{self.name} is no tensor", reason=f"it is {self.type}")

    @property
    def dtype(self) -> DType:
        return self.tensor.dtype

    @property
    def shape(self) -> tuple[Expr, ...]:
        return self.tensor.shape

    @property
    def ndim(self) -> int:
        return len(self.tensor.shape)

    @property
    def known(self) -> Array | None:
        if self._known is None and self.constant is not None:
            self._known = _elements(self.constant, self.tensor)
        return self._known

    @property
    def is_known(self) -> bool:
        """Whether `known` is not None: faster, as no array of elements is made."""
        array = self.constant
        return self._known is not None or (array is not None and _has_elements(array, self.tensor))

    @known.setter
    def known(self, elements: Array | None) -> None:
        self._known = None if elements is None else _held(elements, self.tensor.dtype)

    def __repr__(self) -> str:
        return f"{self.name}: {self.type}"


def _has_elements(array: Array, type_: TensorType) -> bool:
    if array.size > KNOWN_LIMIT or type_.dtype.kind not in ("int", "uint", "bool", "float"):
        return False
    return type_.dtype.name != "uint64" or bool((array <= _LARGEST).all())


def _elements(array: Array, type_: TensorType) -> Array | None:
    if not _has_elements(array, type_):
        return None
    dtype = None if type_.dtype.is_integer or type_.dtype.is_bool else type_.dtype
    result = np.empty(array.shape, object)
    for index, element in np.ndenumerate(array):
        plain = element.item() if hasattr(element, "item") else element
        result[index] = const(int(plain) if type_.dtype.is_integer else plain, dtype)
    return result


def _held(elements: Array, dtype: DType) -> Array | None:
    """Elements as the type holds them; None where one of them may be another number."""
    if not dtype.is_integer or dtype.name == "int64":
        return elements
    numbers = [e.value for e in elements.ravel() if isinstance(e, Const)]
    if len(numbers) < elements.size and dtype.bits < _BITS_OF_SIZES:
        return None
    low, high = dtype.min_value, dtype.max_value
    if all(low <= n <= high for n in numbers):
        return elements
    n = Var("n")
    wrapped = [int(v) for v in evaluate(Cast(dtype, n), {n: np.array(numbers, np.int64)})]
    if max(wrapped) > _LARGEST:
        return None
    held, places = elements.copy(), [k for k, e in enumerate(elements.flat) if isinstance(e, Const)]
    for place, number in zip(places, wrapped, strict=True):
        held.flat[place] = const(number)
    return held
