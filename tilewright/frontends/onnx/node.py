"""The interface of nodes for converters: operands as values, typed attributes, the builder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tilewright.frontends.common.operands import Operands
from tilewright.frontends.onnx.attributes import REQUIRED, Attributes, text
from tilewright.frontends.onnx.element_types import element_type
from tilewright.frontends.onnx.tensors import read_sparse, read_tensor
from tilewright.graph import Array, Value
from tilewright.ir import DType

if TYPE_CHECKING:
    from tilewright.frontends.onnx.importer import Importer, Scope


class Node(Operands):
    """One node during its conversion.

    Operands are those of `Operands`. Attributes: `n.integer("axis", 0)`, `n.real`, `n.text`,
    `n.integers`, …; those without a default must exist.
    """

    def __init__(
        self,
        importer: Importer,
        proto: Any,
        inputs: Sequence[Value | None],
        scope: Scope,
        version: int,
    ) -> None:
        super().__init__(importer.builder, importer.structure, inputs)
        self._importer, self.scope = importer, scope
        self.proto, self.version = proto, version
        self.attributes = Attributes(proto, scope.attributes)
        self.op: str = proto.op_type

    def operand_text(self, index: int) -> str:
        return f"operand {index} ({self.proto.input[index]})"

    @property
    def output_count(self) -> int:
        return len(self.proto.output)

    def wants(self, index: int) -> bool:
        """Whether the model uses this output."""
        return index < len(self.proto.output) and bool(self.proto.output[index])

    def axes(self, index: int, attribute: str = "axes") -> list[int] | None:
        """Axes from an operand, or in older versions an attribute; None where they are left out."""
        if self.get(index) is not None:
            return self.numbers(index)
        return self.integers(attribute, None)

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
