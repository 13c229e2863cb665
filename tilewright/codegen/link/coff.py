"""Windows object files (COFF): renames symbols, and makes files of data."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from tilewright.codegen.link.data import DataSymbol

_HEADER: Final = struct.Struct("<HHIIIHH")
_SECTION: Final = struct.Struct("<8s6I2HI")
_SYMBOL: Final = struct.Struct("<8sIhHBB")
_MACHINES: Final = {0x8664: "x86_64", 0xAA64: "aarch64"}
#: Storage classes visible to other files.
_EXTERNAL, _WEAK = 2, 105
#: Initialized read-only data, 64-byte aligned.
_READ_ONLY: Final = 0x40000040 | 0x00700000
LEAD: Final = ""


class _Symbol(NamedTuple):
    """A symbol, and the offset of its record."""

    name: str
    place: int
    is_defined: bool


def is_coff(code: bytes) -> bool:
    return len(code) >= _HEADER.size and _HEADER.unpack_from(code)[0] in _MACHINES


def defined_names(code: bytes) -> list[str]:
    """The external symbols that a file defines."""
    return [s.name for s in _symbols(code) if s.is_defined]


def renamed(code: bytes, rename: Callable[[str], str]) -> bytes:
    """The file with external symbols renamed. New names are appended to the string table."""
    made, strings = bytearray(code), _strings_at(code)
    (size,) = struct.unpack_from("<I", code, strings)
    added = bytearray()
    for symbol in _symbols(code):
        name = rename(symbol.name)
        if name != symbol.name:
            struct.pack_into("<II", made, symbol.place, 0, size + len(added))
            added += name.encode() + b"\0"
    struct.pack_into("<I", made, strings, size + len(added))
    made[strings + size : strings + size] = added
    return bytes(made)


def data_file(data: DataSymbol, like: bytes) -> bytes:
    """A file for the same machine as `like`, which defines the data."""
    (machine, *_) = _HEADER.unpack_from(like)
    start = _HEADER.size + _SECTION.size
    symbols = start + data.size
    header = _HEADER.pack(machine, 1, 0, symbols, 1, 0, 0)
    section = _SECTION.pack(b".rdata", 0, 0, data.size, start, 0, 0, 0, 0, _READ_ONLY)
    symbol = _SYMBOL.pack(struct.pack("<II", 0, 4), 0, 1, 0, _EXTERNAL, 0)
    name = data.name.encode() + b"\0"
    strings = struct.pack("<I", 4 + len(name)) + name
    return b"".join([header, section, *data.parts, symbol, strings])


def _strings_at(code: bytes) -> int:
    _, _, _, symbols, count, _, _ = _HEADER.unpack_from(code)
    return symbols + count * _SYMBOL.size


def _symbols(code: bytes) -> Iterator[_Symbol]:
    """The external symbols, defined or not."""
    _, _, _, start, count, _, _ = _HEADER.unpack_from(code)
    strings, k = _strings_at(code), 0
    while k < count:
        place = start + k * _SYMBOL.size
        name, _, section, _, kind, more = _SYMBOL.unpack_from(code, place)
        if kind in (_EXTERNAL, _WEAK):
            yield _Symbol(_name(code, name, strings), place, section > 0)
        k += 1 + more


def _name(code: bytes, field: bytes, strings: int) -> str:
    """Names of up to eight bytes are in the record itself, others in the string table."""
    zero, offset = struct.unpack("<II", field)
    if zero:
        return field.rstrip(b"\0").decode()
    start = strings + offset
    return code[start : code.index(b"\0", start)].decode()
