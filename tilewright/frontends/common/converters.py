"""Which converter handles which operator of a framework: by domain, name and version.

    TABLE: ConverterTable[Node] = ConverterTable("tilewright.frontends.onnx.ops")

    @TABLE.converts("Softmax", "LogSoftmax", since=13)
    def softmax(n: Node) -> Value:
        return n.builder.softmax(n[0], axis=n.integer("axis", -1))

A converter gets its front end's object for a node, emits graph operators through the node's
builder, and returns the value of the output, or a list for several. It holds for versions from
`since` up to, but not including, `until`. All modules below the table's folder are imported at the
first lookup.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from pkgutil import walk_packages
from typing import Any, Generic, NamedTuple, TypeVar

from tilewright.support.errors import InternalError

N = TypeVar("N")
F = TypeVar("F", bound=Callable[..., Any])

_NO_END = 1 << 31


class _Row(NamedTuple):
    """A converter and the versions it holds for."""

    since: int
    until: int
    convert: Callable[[Any], Any]


class ConverterTable(Generic[N]):
    """The converters of one front end."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._is_loaded = False
        self._rows: dict[tuple[str, str], list[_Row]] = {}
        self._users: dict[tuple[str, str], Callable[[N], Any]] = {}

    def converts(
        self, *names: str, domain: str = "", since: int = 1, until: int = _NO_END
    ) -> Callable[[F], F]:
        """Declare a converter for these operators of a domain."""

        def declare(convert: F) -> F:
            for name in names:
                self.add(name, convert, domain=domain, since=since, until=until)
            return convert

        return declare

    def add(
        self,
        name: str,
        convert: Callable[[N], Any],
        *,
        domain: str = "",
        since: int = 1,
        until: int = _NO_END,
    ) -> None:
        """Add one converter to the table."""
        rows = self._rows.setdefault((domain, name), [])
        if any(r.since < until and since < r.until for r in rows):
            raise InternalError(f"two converters for {domain}.{name} from version {since}")
        rows.append(_Row(since, until, convert))

    def register(self, name: str, convert: Callable[[N], Any], domain: str = "") -> None:
        """A user's converter, for all versions; it takes precedence over the table's own."""
        self._users[domain, name] = convert

    def unregister(self, name: str, domain: str = "") -> None:
        """Remove what `register` added."""
        self._users.pop((domain, name), None)

    def find(self, domain: str, name: str, version: int = 1) -> Callable[[N], Any] | None:
        """The converter for a version of an operator, if there is one."""
        if user := self._users.get((domain, name)):
            return user
        self._load()
        rows = self._rows.get((domain, name), ())
        return next((r.convert for r in rows if r.since <= version < r.until), None)

    def names(self) -> Iterator[tuple[str, str]]:
        """All operators that have converters, by domain and name."""
        self._load()
        yield from sorted({*self._rows, *self._users})

    def _load(self) -> None:
        if self._is_loaded:
            return
        self._is_loaded = True
        for module in walk_packages(import_module(self._folder).__path__, f"{self._folder}."):
            import_module(module.name)
