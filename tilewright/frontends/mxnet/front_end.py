"""MXNet's row in the table of front ends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tilewright.frontends.mxnet.importer import from_mxnet, input_names
from tilewright.frontends.mxnet.symbol import is_symbol
from tilewright.frontends.sources import FrontEnd, Shapes, Source
from tilewright.graph import Module

_SYMBOL: Final = "-symbol.json"


def _convert(source: Source, shapes: Shapes, values: Mapping[str, Any]) -> Module:
    del values  # nothing in a symbol depends on them
    return from_mxnet(source.given, _params(source), shapes)


def _params(source: Source) -> Any:
    """The parameters as given, or those of the last epoch beside the symbol."""
    if source.params is not None or source.path is None:
        return source.params
    path = source.path
    if not path.name.endswith(_SYMBOL):
        beside = path.with_suffix(".params")
        return beside if beside.is_file() else None
    stem = path.name.removesuffix(_SYMBOL)
    found = [p for p in path.parent.iterdir() if _epoch(p.name, stem) is not None]
    return max(found, key=lambda p: _epoch(p.name, stem) or 0, default=None)


def _epoch(name: str, stem: str) -> int | None:
    """The epoch of a file `stem-0012.params`."""
    number = name.removeprefix(f"{stem}-").removesuffix(".params")
    is_one = name == f"{stem}-{number}.params" and number.isascii() and number.isdigit()
    return int(number) if is_one and len(number) < 10 else None


FRONT_END: Final = FrontEnd(
    "MXNet", lambda s: is_symbol(s.head), _convert, lambda s: input_names(s.given, _params(s))
)
