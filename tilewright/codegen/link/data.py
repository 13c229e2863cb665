"""Bytes that object files refer to by a name: a model's constants."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class DataSymbol(NamedTuple):
    """Bytes that objects refer to by a name."""

    name: str
    parts: Sequence[bytes | memoryview]
    size: int
