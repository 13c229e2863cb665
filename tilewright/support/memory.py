"""The alignment of memory that compiled code uses."""

from __future__ import annotations

from typing import Final

#: Bytes to which arrays, workspaces, constants and members of artifacts are aligned: a cache line
#: of most processors, and a vector of the widest ones.
ALIGNMENT: Final = 64


def aligned(size: int) -> int:
    """A size or an address in bytes, rounded up to the next multiple of the alignment."""
    return -(-size // ALIGNMENT) * ALIGNMENT
