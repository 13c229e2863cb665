"""macOS object files (Mach-O): renames symbols, and makes files of data."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from tilewright.codegen.link.data import DataSymbol
from tilewright.support.memory import ALIGNMENT, aligned

_HEADER: Final = struct.Struct("<8I")
_SEGMENT: Final = struct.Struct("<II16s4Q4I")
_SECTION: Final = struct.Struct("<16s16sQQ8I")
_SYMTAB: Final = struct.Struct("<6I")
_SYMBOL: Final = struct.Struct("<IBBHQ")
_MAGIC: Final = 0xFEEDFACF
_LC_SYMTAB, _LC_SEGMENT, _LC_BUILD_VERSION = 0x2, 0x19, 0x32
#: Bits of a symbol's type: N_EXT, N_PEXT, the mask N_TYPE, its value N_SECT, the mask N_STAB.
_EXTERNAL, _PRIVATE, _KIND, _IN_SECTION, _DEBUG = 0x1, 0x10, 0x0E, 0x0E, 0xE0
_READABLE: Final = 7
#: C symbols begin with it.
LEAD: Final = "_"


class _Symbol(NamedTuple):
    """A symbol, the offset of its record, and its type."""

    name: str
    place: int
    kind: int

    @property
    def is_defined(self) -> bool:
        return self.kind & _KIND == _IN_SECTION


def is_macho(code: bytes) -> bool:
    return len(code) >= _HEADER.size and _HEADER.unpack_from(code)[0] == _MAGIC


def defined_names(code: bytes) -> list[str]:
    """The external symbols that a file defines."""
    return [s.name for s in _symbols(code) if s.is_defined]


def renamed(code: bytes, rename: Callable[[str], str]) -> bytes:
    """The file with external symbols renamed, which also become private to a linked library.

    All strings are written again, after the rest of the file.
    """
    made, place = bytearray(code), _command_at(code, _LC_SYMTAB)
    _, _, _, _, start, size = _SYMTAB.unpack_from(code, place)
    strings = bytearray(code[start : start + size])
    for symbol in _symbols(code):
        name = rename(symbol.name)
        if name == symbol.name:
            continue
        struct.pack_into("<I", made, symbol.place, len(strings))
        strings += name.encode() + b"\0"
        if symbol.is_defined:
            made[symbol.place + 4] |= _PRIVATE
    if start + size == len(made):
        del made[start:]
    strings += bytes(-len(strings) % 8)
    struct.pack_into("<II", made, place + 16, len(made), len(strings))
    return bytes(made + strings)


def data_file(data: DataSymbol, like: bytes) -> bytes:
    """A file for the same machine and system as `like`, which defines the data."""
    _, cpu, subtype, *_ = _HEADER.unpack_from(like)
    system = _build_version(like)
    sizes = _SEGMENT.size + _SECTION.size, len(system), _SYMTAB.size
    start = aligned(_HEADER.size + sum(sizes))
    symbols = start + -(-data.size // 8) * 8
    strings = b"\0" + (LEAD + data.name).encode() + b"\0"
    count = 2 + bool(system)
    header = _HEADER.pack(_MAGIC, cpu, subtype, 1, count, sum(sizes), 0, 0)
    segment = _SEGMENT.pack(
        *(_LC_SEGMENT, sizes[0], b"", 0, data.size, start, data.size, _READABLE, _READABLE, 1, 0)
    )
    power = ALIGNMENT.bit_length() - 1
    section = _SECTION.pack(*(b"__const", b"__TEXT", 0, data.size, start, power, 0, 0, 0, 0, 0, 0))
    table = _SYMTAB.pack(_LC_SYMTAB, _SYMTAB.size, symbols, 1, symbols + _SYMBOL.size, len(strings))
    front = b"".join([header, segment, section, system, table])
    symbol = _SYMBOL.pack(1, _IN_SECTION | _EXTERNAL, 1, 0, 0)
    before, behind = bytes(start - len(front)), bytes(-data.size % 8)
    return b"".join([front, before, *data.parts, behind, symbol, strings])


def _build_version(code: bytes) -> bytes:
    """The load command with the system that a file is for, if there is one."""
    for kind, place, size in _commands(code):
        if kind == _LC_BUILD_VERSION:
            return code[place : place + size]
    return b""


def _commands(code: bytes) -> Iterator[tuple[int, int, int]]:
    """The kind, offset and size of each load command."""
    _, _, _, _, count, _, _, _ = _HEADER.unpack_from(code)
    place = _HEADER.size
    for _ in range(count):
        kind, size = struct.unpack_from("<II", code, place)
        yield kind, place, size
        place += size


def _command_at(code: bytes, wanted: int) -> int:
    return next(place for kind, place, _ in _commands(code) if kind == wanted)


def _symbols(code: bytes) -> Iterator[_Symbol]:
    """The external symbols, defined or not."""
    table = _SYMTAB.unpack_from(code, _command_at(code, _LC_SYMTAB))
    _, _, start, count, strings, _ = table
    for k in range(count):
        place = start + k * _SYMBOL.size
        offset, kind, _, _, _ = _SYMBOL.unpack_from(code, place)
        if kind & _EXTERNAL and not kind & _DEBUG:
            at = strings + offset
            yield _Symbol(code[at : code.index(b"\0", at)].decode(), place, kind)
