"""Which converter handles which operator of PyTorch.

    @converts("softmax", "_softmax")
    def softmax(n: Node) -> Value:
        return n.builder.softmax(n.tensor("self"), axis=n.axis("dim"))

Names are those of ATen without the overload: arguments of a node have their names in the schema, so
that one converter handles all overloads. One for a single overload is declared by its full name
("max.dim") and takes precedence. Operators of other libraries have their namespace as domain.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from tilewright.frontends.common.converters import ConverterTable

if TYPE_CHECKING:
    from tilewright.frontends.torch.node import Node

TABLE: Final[ConverterTable[Node]] = ConverterTable("tilewright.frontends.torch.ops")
#: The domain of PyTorch's own operators.
ATEN: Final = "aten"


def converts(*names: str, domain: str = ATEN) -> Callable[[Any], Any]:
    """Declare a converter for these operators."""
    return TABLE.converts(*names, domain=domain)


def find_converter(domain: str, name: str) -> Callable[[Node], Any] | None:
    """The converter for `name.overload`: its own, or that of all overloads."""
    return TABLE.find(domain, name) or TABLE.find(domain, name.partition(".")[0])


def register_converter(name: str, convert: Callable[[Node], Any]) -> None:
    """Let `convert` handle an operator, such as "mylib::scale" or "mylib::scale.out".

    It gets a `Node`, emits graph operators through `node.builder`, and returns the value of the
    result, or a list for several. It comes before converters of our own.
    """
    domain, _, plain = name.rpartition("::")
    TABLE.register(plain, convert, domain or ATEN)


def unregister_converter(name: str) -> None:
    """Remove what `register_converter` added."""
    domain, _, plain = name.rpartition("::")
    TABLE.unregister(plain, domain or ATEN)
