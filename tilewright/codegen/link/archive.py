"""Archives (`.a`): object files with an index of what they define, as System V writes it."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final

_MAGIC: Final = b"!<arch>\n"


def archive(name: str, code: bytes, symbols: Iterable[str]) -> bytes:
    """An archive of one object file, which defines these symbols."""
    names = list(symbols)
    text = b"".join(n.encode() + b"\0" for n in names)
    index_size = 4 + 4 * len(names) + len(text)
    # The one member comes after the magic, the header of the index, and the index.
    place = len(_MAGIC) + 60 + index_size + index_size % 2
    index = struct.pack(f">{1 + len(names)}I", len(names), *[place] * len(names)) + text
    return b"".join([_MAGIC, *_member("/", index), *_member(f"{name[:15]}/", code)])


def _member(name: str, data: bytes) -> tuple[bytes, bytes, bytes]:
    header = f"{name:<16}{0:<12}{0:<6}{0:<6}{'100644':<8}{len(data):<10}`\n"
    return header.encode(), data, b"\n" * (len(data) % 2)
