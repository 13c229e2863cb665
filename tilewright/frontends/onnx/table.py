"""Which converter serves which operator: by domain, name and version.

    @converts("Softmax", "LogSoftmax", since=13)
    def softmax(n: Node) -> Value:
        return n.builder.softmax(n[0], axis=n.integer("axis", -1))

A converter gets the node (see `node.py`), emits graph operators through `n.builder`, and returns
the value of the output, or a list for several. It holds for the versions from `since` up to, but
without, `until`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from tilewright.support.errors import InternalError

if TYPE_CHECKING:
    from tilewright.frontends.onnx.node import Node

Converter = Callable[["Node"], Any]
F = TypeVar("F", bound=Callable[..., Any])


class Row(NamedTuple):
    """A converter and the versions it holds for."""

    since: int
    until: int
    convert: Converter


_ROWS: dict[tuple[str, str], list[Row]] = {}
_NO_END = 1 << 31


def converts(
    *names: str, domain: str = "", since: int = 1, until: int = _NO_END
) -> Callable[[F], F]:
    """Declare a converter for these operators of a domain."""

    def declare(convert: F) -> F:
        for name in names:
            add_row(name, Row(since, until, convert), domain)
        return convert

    return declare


def add_row(name: str, row: Row, domain: str = "") -> None:
    """Add one converter to the table."""
    rows = _ROWS.setdefault((domain, name), [])
    if any(r.since < row.until and row.since < r.until for r in rows):
        raise InternalError(f"two converters for {domain}.{name} from version {row.since}")
    rows.append(row)


def find_converter(domain: str, name: str, version: int) -> Converter | None:
    """The converter for a version of an operator, if there is one."""
    load_converters()
    rows = _ROWS.get((domain, name), ())
    return next((r.convert for r in rows if r.since <= version < r.until), None)


@cache
def load_converters() -> None:
    """Import all families, which fill the table."""
    from tilewright.frontends.onnx import ops

    for family in iter_modules(ops.__path__):
        import_module(f"{ops.__name__}.{family.name}")
