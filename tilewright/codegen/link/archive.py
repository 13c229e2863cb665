"""Archives (`.a`, `.lib`): object files with an index of the symbols they define.

Linux and Windows use System V's index, macOS that of BSD.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import accumulate
from typing import Final

from tilewright.codegen.link.macho import is_macho
from tilewright.codegen.link.members import Member

_MAGIC: Final = b"!<arch>\n"
_HEADER_BYTES: Final = 60
#: BSD names before a member's contents have this length, so that contents are 8-byte aligned.
_NAME_BYTES: Final = 20


def archive(files: Sequence[Member]) -> bytes:
    return _bsd(files) if is_macho(files[0].code) else _system_v(files)


def _system_v(files: Sequence[Member]) -> bytes:
    names = [(k, symbol) for k, file in enumerate(files) for symbol in file.symbols]
    text = b"".join(symbol.encode() + b"\0" for _, symbol in names)
    members = [b"".join(_member(f"{file.name[:15]}/", file.code, 2)) for file in files]
    size = 4 + 4 * len(names) + len(text)
    start = len(_MAGIC) + _HEADER_BYTES + size + size % 2
    places = list(accumulate(map(len, members), initial=start))
    index = struct.pack(f">{1 + len(names)}I", len(names), *(places[k] for k, _ in names)) + text
    return b"".join([_MAGIC, *_member("/", index, 2), *members])


def _bsd(files: Sequence[Member]) -> bytes:
    names = [(k, symbol) for k, file in enumerate(files) for symbol in file.symbols]
    text = b"".join(symbol.encode() + b"\0" for _, symbol in names)
    text += bytes(-len(text) % 8)
    offsets = accumulate((len(symbol.encode()) + 1 for _, symbol in names), initial=0)
    members = [b"".join(_named(file.name, file.code)) for file in files]
    size = 8 * len(names)
    index_size = -(-(8 + size + len(text)) // 8) * 8
    start = len(_MAGIC) + _HEADER_BYTES + _NAME_BYTES + index_size
    places = list(accumulate(map(len, members), initial=start))
    table = [v for (k, _), at in zip(names, offsets, strict=False) for v in (at, places[k])]
    index = struct.pack(f"<{1 + len(table)}I", size, *table) + struct.pack("<I", len(text)) + text
    return b"".join([_MAGIC, *_named("__.SYMDEF", index), *members])


def _named(name: str, data: bytes) -> tuple[bytes, bytes, bytes]:
    """A member with its name before its contents (BSD)."""
    front = name.encode().ljust(_NAME_BYTES, b"\0")
    return _member(f"#1/{_NAME_BYTES}", front + data + b"\n" * (-len(data) % 8), 1)


def _member(name: str, data: bytes, alignment: int) -> tuple[bytes, bytes, bytes]:
    header = f"{name:<16}{0:<12}{0:<6}{0:<6}{'100644':<8}{len(data):<10}`\n"
    return header.encode(), data, b"\n" * (-len(data) % alignment)
