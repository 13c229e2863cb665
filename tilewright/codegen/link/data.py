"""Bytes that object files refer to by a name: a model's constants."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

#: Where data begins in memory: at a multiple of this.
ALIGNMENT: Final = 64


class Data(NamedTuple):
    """Bytes that objects refer to by a name."""

    name: str
    parts: Sequence[bytes | memoryview]
    size: int
