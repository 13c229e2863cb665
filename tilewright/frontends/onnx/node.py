"""What a converter sees of a node: operands as values, attributes typed, the builder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tilewright.frontends.common.padding import simplified
from tilewright.frontends.onnx.attributes import REQUIRED, Attributes, text
from tilewright.frontends.onnx.element_types import element_type
from tilewright.frontends.onnx.tensors import read_sparse, read_tensor
from tilewright.graph import Array, Builder, Dim, Value
from tilewright.ir import Const, DType, Expr, as_expr
from tilewright.support.errors import UserError

if TYPE_CHECKING:
    from tilewright.frontends.onnx.importer import Importer, Scope


#: A list of sizes that is longer than this cannot be meant.
_MAX_SIZES: Final = 1 << 14


class Node:
    """One node while it is converted.

    `n[0]` is an operand that must be there, `n.get(1)` one that may be missing. `n.dims(1)` are the
    elements of an integer tensor as sizes: numbers, or expressions where they are known only when
    the program runs. `n.numbers(1)` and `n.array(1)` are for what gives structure and must be known
    now. Attributes: `n.integer("axis", 0)`, `n.real`, `n.text`, `n.integers`, …; without a default
    they must be there.
    """

    def __init__(
        self,
        importer: Importer,
        proto: Any,
        inputs: Sequence[Value | None],
        scope: Scope,
        version: int,
    ) -> None:
        self._importer, self.scope = importer, scope
        self.proto, self.inputs, self.version = proto, tuple(inputs), version
        self.attributes = Attributes(proto, scope.attributes)
        self.op: str = proto.op_type

    # ---- operands -------------------------------------------------------------------------------

    @property
    def builder(self) -> Builder:
        return self._importer.builder

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

    @property
    def output_count(self) -> int:
        return len(self.proto.output)

    def wants(self, index: int) -> bool:
        """Whether the model uses this output."""
        return index < len(self.proto.output) and bool(self.proto.output[index])

    # ---- what must be known ---------------------------------------------------------------------

    def array(self, index: int) -> Array:
        """An operand that gives structure, as an array."""
        value = self[index]
        what = f"operand {index} ({self.proto.input[index]})"
        return self._importer.structure.require(value, what)

    def find_array(self, index: int) -> Array | None:
        """An operand as an array, if it is known already."""
        value = self.get(index)
        return None if value is None else self._importer.structure.array(value)

    def numbers(self, index: int) -> list[int]:
        """An operand that gives structure, as whole numbers."""
        return _whole(self.array(index))

    def number(self, index: int) -> int:
        """An operand of one element that gives structure, as a whole number."""
        found = self.numbers(index)
        if len(found) != 1:
            raise UserError(f"operand {index} has {len(found)} elements", reason="it takes one")
        return found[0]

    def axes(self, index: int, attribute: str = "axes") -> list[int] | None:
        """Axes from an operand, or in older versions an attribute; None where they are left out."""
        if self.get(index) is not None:
            return self.numbers(index)
        return self.integers(attribute, None)

    def dims(self, index: int, count: int | None = None) -> list[Dim]:
        """The elements of an integer operand as sizes, which may be read when the program runs;
        `count` of them, where the operand does not say how many there are."""
        value = self[index]
        if count is not None and value.known is None and value.tensor.size is None:
            value = self.builder.reshape(value, shape=[count])
        return self.dims_of(value, f"operand {index}")

    def dims_of(self, value: Value, what: str) -> list[Dim]:
        """The elements of an integer tensor as sizes."""
        size = value.tensor.size
        if size is not None and size > _MAX_SIZES:
            raise UserError(f"{what} has {size} elements", reason="it should be a few sizes")
        found = self._importer.structure.array(value)
        if found is not None:
            return list[Dim](_whole(found))
        if value.known is None and size is None:
            # The rank of something depends on how many there are.
            self._importer.structure.require(value, what)
        is_new = value.known is None
        dims = self.builder.read(value, value.name)
        if is_new:
            self._importer.structure.record_read(value, dims)
        return [_plain(e) for e in dims]

    def named(self, sizes: Sequence[Expr], hint: str) -> list[Expr]:
        """Sizes whose formulas are long, by names of their own."""
        value, dims = self.builder.name_dims(sizes, hint)
        self._importer.structure.record_read(value, dims)
        return list[Expr](dims)

    def is_read(self, dim: Dim) -> bool:
        """Whether a size comes from the values of a tensor, so that it may be anything, even -1."""
        return isinstance(dim, Expr) and self._importer.structure.is_read(dim)

    @staticmethod
    def is_equal(a: Dim, b: Dim) -> bool:
        """Whether two sizes are known to be equal."""
        difference = simplified(as_expr(a) - b)
        return isinstance(difference, int) and difference == 0

    def require_shape(self, index: int) -> None:
        """Insist on an operand whose extents are numbers, because the structure depends on them."""
        for dim in self[index].shape:
            if not isinstance(dim, Const):
                self._importer.structure.require_dim(dim, f"the shape of operand {index}")

    def dim(self, index: int) -> Dim:
        """An integer operand of one element as a size."""
        return self.dim_of(self[index], f"operand {index}")

    def dim_of(self, value: Value, what: str) -> Dim:
        """An integer tensor of one element as a size."""
        found = self.dims_of(value, what)
        if len(found) != 1:
            raise UserError(f"{what} has {len(found)} elements", reason="it should have one")
        return found[0]

    # ---- attributes -----------------------------------------------------------------------------

    def has(self, name: str) -> bool:
        return name in self.attributes

    def integer(self, name: str, default: Any = REQUIRED) -> Any:
        return self.attributes.get(name, "i", default)

    def flag(self, name: str, default: bool = False) -> bool:
        return bool(self.attributes.get(name, "i", default))

    def real(self, name: str, default: Any = REQUIRED) -> Any:
        return self.attributes.get(name, "f", default)

    def text(self, name: str, default: Any = REQUIRED) -> Any:
        found = self.attributes.get(name, "s", default)
        return text(found, name) if isinstance(found, bytes) else found

    def integers(self, name: str, default: Any = REQUIRED) -> Any:
        return self.attributes.get(name, "ints", default)

    def reals(self, name: str, default: Any = REQUIRED) -> Any:
        return self.attributes.get(name, "floats", default)

    def texts(self, name: str, default: Any = REQUIRED) -> Any:
        found = self.attributes.get(name, "strings", default)
        return found and [text(s, name) if isinstance(s, bytes) else s for s in found]

    def dtype(self, name: str, default: Any = REQUIRED) -> DType:
        """An element type, by its number."""
        found = self.attributes.get(name, "i", default)
        return found if isinstance(found, DType) else element_type(found, f"the attribute {name}")

    def tensor(self, name: str) -> tuple[Array, DType]:
        """A tensor attribute: the array and its element type."""
        return read_tensor(self.attributes.get(name, "t", REQUIRED), self._importer.files)

    def sparse_tensor(self, name: str) -> tuple[Array, DType]:
        proto = self.attributes.get(name, "sparse_tensor", REQUIRED)
        return read_sparse(proto, self._importer.files)

    def type_proto(self, name: str) -> Any:
        return self.attributes.get(name, "tp", REQUIRED)

    # ---- graphs inside --------------------------------------------------------------------------

    def graph(self, name: str) -> Any:
        """The GraphProto of an attribute."""
        return self.attributes.get(name, "g", REQUIRED)

    def body(self, name: str) -> Callable[..., list[Value | None]]:
        """A graph attribute as a function that converts it for some arguments."""
        proto = self.graph(name)

        def run(*args: Value | None) -> list[Value | None]:
            return self._importer.subgraph(proto, args, self.scope)

        return run

    def expand(self, function: Any, inputs: Sequence[Value | None]) -> list[Value | None]:
        """The outputs of a FunctionProto on these operands, with this node's attributes."""
        return self._importer.function(function, inputs, self.attributes)

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
