"""The interface of nodes for converters: operands, attributes, the builder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.frontends.mxnet.attributes import Attributes
from tilewright.frontends.mxnet.symbol import SymbolNode
from tilewright.graph import Builder, Dim, Value
from tilewright.ir import DType, as_expr
from tilewright.support.errors import UserError

if TYPE_CHECKING:
    from tilewright.frontends.mxnet.importer import Importer

#: Element types by name, and by the numbers that variables have.
_TYPES = "float32 float64 float16 uint8 int32 int8 int64 bool".split()


class Node(Attributes):
    """One node while it is converted: `n[0]` is an operand, `n.integer("axis", 0)` an attribute."""

    def __init__(self, importer: Importer, definition: SymbolNode, inputs: Sequence[Any]) -> None:
        super().__init__(definition.attrs)
        self._importer, self._inputs = importer, inputs
        self.definition, self.op = definition, definition.op

    @property
    def builder(self) -> Builder:
        return self._importer.builder

    def __len__(self) -> int:
        return len(self._inputs)

    def __getitem__(self, index: int) -> Value:
        if index >= len(self._inputs):
            raise UserError(
                f"it has {len(self._inputs)} operands", reason=f"it takes at least {index + 1}"
            )
        return self._importer.value(*self._inputs[index])

    @property
    def all(self) -> list[Value]:
        return [self[k] for k in range(len(self._inputs))]

    def state(self, name: str) -> Value:
        """A parameter by its name: old symbols do not list those that training changes."""
        return self._importer.parameter(f"{self.definition.name}_{name}")

    def axis(self, name: str, default: Any, rank: int) -> int:
        """An axis, counted from the front."""
        return checked_axis(self.integer(name, default), rank)

    def dtype(self, name: str, default: DType | str) -> DType | str:
        """An element type, by its name or its number."""
        found = self.text(name, default)
        if found is default:
            return default
        if found.isdigit() and int(found) < len(_TYPES):
            return _TYPES[int(found)]
        if found not in _TYPES:
            raise UserError(f"{name} is {found[:40]}", remedy=f"known: {', '.join(_TYPES)}")
        return found

    def scalar(self, value: float, like: Value) -> Value:
        """A number of the element type of another value."""
        return self.builder.constant(np.asarray(value), like.dtype)

    def index(self, value: Value) -> Value:
        """Indices, which may be floats in MXNet, as integers."""
        return value if value.dtype.is_integer else self.builder.cast(value, dtype="int64")

    def extent(self, x: Value, axis: int) -> int:
        """A size that must be a number."""
        return _number(x, axis)

    def body(self, index: int) -> Callable[[Sequence[Value]], list[Value]]:
        """An inner graph as a function of the values of its variables."""
        if index >= len(self.definition.subgraphs):
            raise UserError(f"it has {len(self.definition.subgraphs)} graphs inside")
        graph = self.definition.subgraphs[index]
        return lambda values: self._importer.inner(graph, values)

    def inner_variables(self, index: int) -> int:
        """How many variables a graph inside the node has."""
        return len(self.definition.subgraphs[index].variables)


def checked_axis(axis: int, rank: int) -> int:
    """An axis, counted from the front."""
    if not -rank <= axis < rank:
        raise UserError(f"axis {axis} of {rank} dimensions")
    return axis % rank


def _number(x: Value, axis: int) -> int:
    found = getattr(x.shape[axis], "value", None)
    if not isinstance(found, int):
        raise UserError(f"the sizes of {x} must be known", remedy="give them as numbers in shapes")
    return found


def as_dim(dim: Any) -> Dim:
    """A dimension as a number, if it is one."""
    found = getattr(as_expr(dim), "value", None)
    return found if isinstance(found, int) else dim
