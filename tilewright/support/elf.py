"""Relocatable files of 64-bit little-endian ELF, taken apart: sections, symbols, relocations.

Loading (`runtime.image`), asking for names (`runtime.objectfile`) and merging (`codegen.link`) all
read files by this. Files are hostile until checked: whatever does not fit is a `DamagedError`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

MAGIC: Final = b"\x7fELF\x02\x01"
#: The kind of file that a compiler makes.
RELOCATABLE: Final = 1

HEADER: Final = struct.Struct("<16sHHIQQQIHHHHHH")
SECTION: Final = struct.Struct("<IIQQQQIIQQ")
SYMBOL: Final = struct.Struct("<IBBHQQ")
RELA: Final = struct.Struct("<QQq")

#: Kinds of sections.
PROGBITS, SYMTAB, STRTAB, RELA_KIND, NOTE, NOBITS, REL, GROUP = 1, 2, 3, 4, 7, 8, 9, 17
#: What may be done with a section when it is loaded.
WRITE, ALLOC, EXEC, TLS = 1, 2, 4, 0x400
#: Numbers of sections that are none.
UNDEFINED, FIRST_SPECIAL, ABSOLUTE = 0, 0xFF00, 0xFFF1
#: Who can see a symbol.
LOCAL, GLOBAL, WEAK = 0, 1, 2


class DamagedError(ValueError):
    """The file is damaged or cut short."""


class Section(NamedTuple):
    """A section; those without contents (`NOBITS`) have a size only."""

    name: str
    kind: int
    flags: int
    data: bytes
    size: int
    link: int
    info: int
    alignment: int
    entry_size: int


class Symbol(NamedTuple):
    """A name, and where in a section it lies."""

    name: str
    info: int
    other: int
    section: int
    value: int
    size: int

    @property
    def binding(self) -> int:
        return self.info >> 4


class Relocation(NamedTuple):
    """A place in a section that depends on where a symbol lies."""

    section: int
    offset: int
    kind: int
    symbol: int
    addend: int


@dataclass(slots=True)
class Elf:
    """One file; the first section and the first symbol are empty by definition."""

    kind: int
    machine: int
    flags: int
    sections: list[Section]
    symbols: list[Symbol]

    def relocations(self) -> Iterator[Relocation]:
        """All relocations, of all sections."""
        for section in self.sections:
            if section.kind == RELA_KIND:
                for offset, info, addend in RELA.iter_unpack(section.data):
                    yield Relocation(section.info, offset, info & 0xFFFFFFFF, info >> 32, addend)


def read_elf(code: bytes) -> Elf:
    """The file in parts."""
    try:
        return _read(code)
    except (struct.error, IndexError, ValueError) as error:
        raise DamagedError(str(error)) from None


def _read(code: bytes) -> Elf:
    if not code.startswith(MAGIC):
        raise DamagedError("it is no 64-bit ELF file")
    head = HEADER.unpack_from(code)
    kind, machine, start, flags = head[1], head[2], head[6], head[7]
    stride, count, names_at = head[11], head[12], head[13]
    if count and stride != SECTION.size:
        raise DamagedError("its sections are of another size")
    raw = [SECTION.unpack_from(code, start + k * SECTION.size) for k in range(count)]
    names: int = raw[int(names_at)][4] if raw else 0
    sections = [_section(code, names, r) for r in raw]
    return Elf(kind, machine, flags, sections, _symbols(code, sections, raw))


def _section(code: bytes, names: int, raw: tuple[int, ...]) -> Section:
    name, kind, flags, _, offset, size, link, info, alignment, entry = raw
    data = b"" if kind == NOBITS else code[offset : offset + size]
    if kind not in (0, NOBITS) and len(data) != size:
        raise DamagedError("a section lies past its end")
    return Section(_text(code, names + name), kind, flags, data, size, link, info, alignment, entry)


def _symbols(
    code: bytes, sections: Sequence[Section], raw: Sequence[tuple[int, ...]]
) -> list[Symbol]:
    for section in sections:
        if section.kind == SYMTAB:
            names = raw[section.link][4]
            entries = SYMBOL.iter_unpack(section.data)
            return [Symbol(_text(code, names + name), *rest) for name, *rest in entries]
    return []


def _text(code: bytes, at: int) -> str:
    return code[at : code.index(b"\0", at)].decode()
