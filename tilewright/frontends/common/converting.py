"""Converting one node of a model."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from tilewright.frontends.common.located import locating
from tilewright.graph import Builder, Value
from tilewright.support.faults import during


@contextmanager
def converting(builder: Builder, kind: str, origin: str, remedy: str) -> Generator[None]:
    """A block in which a node of a model (`kind`: node, layer) becomes operators of a graph."""
    builder.origin = origin
    with during(kind, origin), locating(origin, remedy):
        yield


def as_list(results: Any) -> list[Value | None]:
    """What a converter returns: one value, or several."""
    if isinstance(results, list | tuple):
        return list(results)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    return [results]
