"""The interface of nodes for converters: operands as values, typed attributes, functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from tilewright.frontends.common.operands import Operands
from tilewright.frontends.tensorflow.tensors import declared_shape, element_type, read_tensor
from tilewright.frontends.tensorflow.wire import Message, text
from tilewright.graph import Array, Value
from tilewright.ir import DType
from tilewright.support.errors import UserError

if TYPE_CHECKING:
    from tilewright.frontends.tensorflow.importer import Importer, Scope

REQUIRED: Final = object()


class Node(Operands):
    """One node during its conversion.

    Operands are those of `Operands`; those that are not tensors (variables, tables, lists of
    tensors) are in `n.given`. Attributes: `n.integer("axis", 0)`, `n.flag`, `n.text`, `n.integers`,
    `n.dtype`, …; those without a default must exist.
    """

    def __init__(
        self, importer: Importer, proto: Message, given: Sequence[Any], scope: Scope
    ) -> None:
        values = [g if isinstance(g, Value) else None for g in given]
        super().__init__(importer.builder, importer.structure, values)
        self.importer, self.proto, self.scope, self.given = importer, proto, scope, list(given)
        self.op: str = proto.op
        self.name: str = proto.name

    # ---- attributes -----------------------------------------------------------------------------

    def attribute(self, name: str) -> Message | None:
        """An attribute; that of the enclosing function if the node refers to it."""
        found = self.proto.attr.get(name)
        if found is not None and found.has("placeholder"):
            return self.scope.attributes.get(found.placeholder)
        return found

    def has(self, name: str) -> bool:
        return self.attribute(name) is not None

    def _field(self, name: str, kind: str, default: Any) -> Any:
        found = self.attribute(name)
        if found is None:
            if default is REQUIRED:
                raise UserError(f"the attribute {name} is missing")
            return default
        return getattr(found, kind)

    def integer(self, name: str, default: Any = REQUIRED) -> Any:
        return self._field(name, "i", default)

    def real(self, name: str, default: Any = REQUIRED) -> Any:
        return self._field(name, "f", default)

    def flag(self, name: str, default: bool = False) -> bool:
        return bool(self._field(name, "b", default))

    def text(self, name: str, default: Any = REQUIRED) -> Any:
        found = self.attribute(name)
        if found is None:
            return self._field(name, "s", default)
        return text(memoryview(found.s))

    def integers(self, name: str, default: Any = REQUIRED) -> Any:
        found = self._field(name, "list", default)
        return list(found.i) if isinstance(found, Message) else found

    def reals(self, name: str, default: Any = REQUIRED) -> Any:
        found = self._field(name, "list", default)
        return list(found.f) if isinstance(found, Message) else found

    def texts(self, name: str, default: Any = REQUIRED) -> Any:
        found = self._field(name, "list", default)
        return [text(s) for s in found.s] if isinstance(found, Message) else found

    def dtype(self, name: str, default: Any = REQUIRED) -> DType:
        found = self._field(name, "type", default)
        return found if isinstance(found, DType) else element_type(found, f"the attribute {name}")

    def shape(self, name: str) -> list[int | None] | None:
        return declared_shape(self._field(name, "shape", REQUIRED))

    def tensor(self, name: str) -> tuple[Array, DType]:
        return read_tensor(self._field(name, "tensor", REQUIRED), self.name)

    def function(self, name: str) -> Message:
        """A function as an attribute: its name, and attributes of its own."""
        return self._field(name, "func", REQUIRED)

    def functions(self, name: str) -> list[Message]:
        return list(self._field(name, "list", REQUIRED).func)

    # ---- calls ----------------------------------------------------------------------------------

    def call(self, function: Message, args: Sequence[Any]) -> list[Any]:
        """The results of a function for these arguments."""
        return self.importer.function(function, args)

    @property
    def is_channels_first(self) -> bool:
        """Whether images have their channels second."""
        return self.text("data_format", "NHWC") in ("NCHW", "NCDHW", "NCW")
