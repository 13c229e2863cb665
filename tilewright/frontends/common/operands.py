"""The interface of nodes for converters of all frameworks: operands as values, sizes, numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from tilewright.frontends.common.padding import simplified
from tilewright.frontends.common.structure import Structure
from tilewright.graph import Array, Binding, Builder, Dim, Value
from tilewright.graph import Node as Expression
from tilewright.graph import Type as GraphType
from tilewright.ir import Const, Expr, as_expr
from tilewright.support.errors import UserError

#: Longer lists of sizes are refused.
_MAX_SIZES: Final = 1 << 14


class Recorder(Builder):
    """A builder that records which bindings compute values."""

    def __init__(self, structure: Structure) -> None:
        super().__init__("main")
        self._structure = structure

    def bind(
        self, expr: Expression, types: Sequence[GraphType], names: Sequence[str]
    ) -> tuple[Value, ...]:
        outputs = super().bind(expr, types, names)
        self._structure.record(Binding(outputs, expr))
        return outputs


class Operands:
    """The operands of one node.

    `n[0]` is an operand that must exist, `n.get(1)` one that may be missing. `n.dims(1)` are the
    elements of an integer tensor as sizes: numbers, or expressions where they are known only at run
    time. `n.numbers(1)` and `n.array(1)` are for operands that determine the structure of the graph
    and must be known now.
    """

    def __init__(
        self, builder: Builder, structure: Structure, inputs: Sequence[Value | None]
    ) -> None:
        self.builder, self.structure, self.inputs = builder, structure, tuple(inputs)

    def operand_text(self, index: int) -> str:
        """The name of an operand in messages."""
        return f"operand {index}"

    def __getitem__(self, index: int) -> Value:
        value = self.get(index)
        if value is None:
            raise UserError(f"operand {index} is missing")
        return value

    def get(self, index: int) -> Value | None:
        """An operand, or None where it is left out."""
        return self.inputs[index] if index < len(self.inputs) else None

    @property
    def all(self) -> list[Value]:
        """All operands, none of which may be missing."""
        return [self[k] for k in range(len(self.inputs))]

    def all_from(self, index: int) -> list[Value]:
        """The operands from one on, none of which may be missing."""
        return [self[k] for k in range(index, len(self.inputs))]

    # ---- what must be known ---------------------------------------------------------------------

    def array(self, index: int) -> Array:
        """An operand that determines structure, as an array."""
        value = self[index]
        return self.structure.require(value, self.operand_text(index))

    def find_array(self, index: int) -> Array | None:
        """An operand as an array, if it is known already."""
        value = self.get(index)
        return None if value is None else self.structure.array(value)

    def numbers(self, index: int) -> list[int]:
        """An operand that determines structure, as integers."""
        return _whole(self.array(index))

    def number(self, index: int) -> int:
        """An operand of one element that determines structure, as an integer."""
        found = self.numbers(index)
        if len(found) != 1:
            raise UserError(f"operand {index} has {len(found)} elements", reason="it takes one")
        return found[0]

    def dims(self, index: int, count: int | None = None) -> list[Dim]:
        """The elements of an integer operand as sizes, which may be read at run time; `count` of
        them, where their number is not known from the operand."""
        value = self[index]
        if count is not None and value.known is None and value.tensor.size is None:
            value = self.builder.reshape(value, shape=[count])
        return self.dims_of(value, f"operand {index}")

    def dims_of(self, value: Value, what: str) -> list[Dim]:
        """The elements of an integer tensor as sizes."""
        size = value.tensor.size
        if size is not None and size > _MAX_SIZES:
            raise UserError(f"{what} has {size} elements", reason="it should be a few sizes")
        found = self.structure.array(value)
        if found is not None:
            return list[Dim](_whole(found))
        if value.known is None and size is None:
            # The rank of some value depends on their number.
            self.structure.require(value, what)
        is_new = value.known is None
        dims = self.builder.read(value, value.name)
        if is_new:
            self.structure.record_read(value, dims)
        return [_plain(e) for e in dims]

    def named(self, sizes: Sequence[Expr], hint: str) -> list[Expr]:
        """Sizes with long formulas, bound to names of their own."""
        value, dims = self.builder.name_dims(sizes, hint)
        self.structure.record_read(value, dims)
        return list[Expr](dims)

    def is_read(self, dim: Dim) -> bool:
        """Whether a size is read from a tensor at run time, so that it may be anything, even -1."""
        return isinstance(dim, Expr) and self.structure.is_read(dim)

    @staticmethod
    def is_equal(a: Dim, b: Dim) -> bool:
        """Whether two sizes are known to be equal."""
        difference = simplified(as_expr(a) - b)
        return isinstance(difference, int) and difference == 0

    def require_shape(self, index: int) -> None:
        """Require known extents of an operand, because the structure depends on them."""
        for dim in self[index].shape:
            if not isinstance(dim, Const):
                self.structure.require_dim(dim, f"the shape of operand {index}")

    def dim(self, index: int) -> Dim:
        """An integer operand of one element as a size."""
        return self.dim_of(self[index], f"operand {index}")

    def dim_of(self, value: Value, what: str) -> Dim:
        """An integer tensor of one element as a size."""
        found = self.dims_of(value, what)
        if len(found) != 1:
            raise UserError(f"{what} has {len(found)} elements", reason="it should have one")
        return found[0]

    # ---- values ---------------------------------------------------------------------------------

    def constant(self, value: Any, dtype: object = None) -> Value:
        return self.builder.constant(value, dtype)

    def scalar(self, value: Any, like: Value) -> Value:
        """A number of the element type of another value."""
        return self.builder.constant(np.asarray(value), like.dtype)


def _whole(array: Array) -> list[Any]:
    if array.dtype.kind not in "iub":
        raise UserError(f"a tensor of {array.dtype} stands where whole numbers must")
    return [int(v) for v in array.ravel()]


def _plain(dim: Expr) -> Dim:
    return int(dim.value) if isinstance(dim, Const) else dim
