"""Converting one node of a model."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from tilewright.frontends.common.located import locating
from tilewright.graph import Builder
from tilewright.support.faults import during
from tilewright.support.narrowing import is_sequence


@contextmanager
def converting(builder: Builder, kind: str, origin: str, remedy: str) -> Generator[None]:
    """A block in which a node of a model (`kind`: node, layer) becomes operators of a graph."""
    builder.origin = origin
    with during(kind, origin), locating(origin, remedy):
        yield


def as_list(results: Any) -> list[Any]:
    """The results of a converter or a builder, one value or several, as a list."""
    return list(results) if is_sequence(results) else [results]
