"""Parses relocatable files of little-endian ELF: sections, symbols, relocations.

Loading (`runtime.image`), looking up names (`runtime.objectfile`) and merging (`codegen.link`) all
use this. Files are untrusted until checked: any inconsistency is a `DamagedError`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

MAGIC: Final = b"\x7fELF\x02\x01"
#: The kind of file that compilers produce.
RELOCATABLE: Final = 1

#: Kinds of sections.
PROGBITS, SYMTAB, STRTAB, RELA_KIND, NOTE, NOBITS, REL, GROUP = 1, 2, 3, 4, 7, 8, 9, 17
#: Flags of sections when they are loaded.
WRITE, ALLOC, EXEC, TLS = 1, 2, 4, 0x400
#: Section numbers with a special meaning (SHN_UNDEF, SHN_ABS, …).
UNDEFINED, FIRST_SPECIAL, ABSOLUTE = 0, 0xFF00, 0xFFF1
#: Bindings of symbols.
LOCAL, GLOBAL, WEAK = 0, 1, 2


@dataclass(frozen=True)
class ElfLayout:
    """The layout of tables in files with addresses of 64 or of 32 bits."""

    magic: bytes
    header: struct.Struct
    section: struct.Struct
    symbol: struct.Struct
    #: Relocations with explicit addends, and those whose addends are stored where they apply.
    rela: struct.Struct
    rel: struct.Struct
    #: The bit of a relocation's info at which the symbol's number begins; its kind is below.
    symbol_shift: int
    #: The indices of name, info, other, section, value and size in the row of a symbol.
    symbol_order: tuple[int, ...]

    def read_symbol(self, row: Sequence[int], name: str) -> Symbol:
        return Symbol(name, *(row[k] for k in self.symbol_order[1:]))

    def write_symbol(self, symbol: Symbol, name: int) -> bytes:
        fields = dict(zip(self.symbol_order, (name, *symbol[1:]), strict=True))
        return self.symbol.pack(*(fields[k] for k in range(len(fields))))


ELF64: Final = ElfLayout(
    MAGIC,
    struct.Struct("<16sHHIQQQIHHHHHH"),
    struct.Struct("<IIQQQQIIQQ"),
    struct.Struct("<IBBHQQ"),
    struct.Struct("<QQq"),
    struct.Struct("<QQ"),
    32,
    (0, 1, 2, 3, 4, 5),
)
ELF32: Final = ElfLayout(
    b"\x7fELF\x01\x01",
    struct.Struct("<16sHHIIIIIHHHHHH"),
    struct.Struct("<IIIIIIIIII"),
    struct.Struct("<IIIBBH"),
    struct.Struct("<IIi"),
    struct.Struct("<II"),
    8,
    (0, 3, 4, 5, 1, 2),
)


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
    """A name, and its position in a section."""

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
    """A position in a section that depends on the address of a symbol."""

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
    layout: ElfLayout = ELF64

    def relocations(self) -> Iterator[Relocation]:
        """All relocations with addends, of all sections."""
        shift = self.layout.symbol_shift
        below = (1 << shift) - 1
        for section in self.sections:
            if section.kind == RELA_KIND:
                for offset, info, addend in self.layout.rela.iter_unpack(section.data):
                    yield Relocation(section.info, offset, info & below, info >> shift, addend)


def layout_of(code: bytes) -> ElfLayout | None:
    """The layout of a file; None unless it is a little-endian ELF file."""
    return next((known for known in (ELF64, ELF32) if code.startswith(known.magic)), None)


def read_elf(code: bytes) -> Elf:
    """The parsed file."""
    try:
        return _read(code)
    except (struct.error, IndexError, ValueError) as error:
        raise DamagedError(str(error)) from None


def _read(code: bytes) -> Elf:
    layout = layout_of(code)
    if layout is None:
        raise DamagedError("it is no little-endian ELF file")
    head = layout.header.unpack_from(code)
    kind, machine, start, flags = head[1], head[2], head[6], head[7]
    stride, count, names_at = head[11], head[12], head[13]
    if count and stride != layout.section.size:
        raise DamagedError("its sections are of another size")
    raw = [layout.section.unpack_from(code, start + k * stride) for k in range(count)]
    names: int = raw[int(names_at)][4] if raw else 0
    sections = [_section(code, names, r) for r in raw]
    return Elf(kind, machine, flags, sections, _symbols(code, sections, raw, layout), layout)


def _section(code: bytes, names: int, raw: tuple[int, ...]) -> Section:
    name, kind, flags, _, offset, size, link, info, alignment, entry = raw
    data = b"" if kind == NOBITS else code[offset : offset + size]
    if kind not in (0, NOBITS) and len(data) != size:
        raise DamagedError("a section lies past its end")
    return Section(_text(code, names + name), kind, flags, data, size, link, info, alignment, entry)


def _symbols(
    code: bytes, sections: Sequence[Section], raw: Sequence[tuple[int, ...]], layout: ElfLayout
) -> list[Symbol]:
    for section in sections:
        if section.kind == SYMTAB:
            names = raw[section.link][4]
            rows = layout.symbol.iter_unpack(section.data)
            return [layout.read_symbol(row, _text(code, names + row[0])) for row in rows]
    return []


def _text(code: bytes, at: int) -> str:
    return code[at : code.index(b"\0", at)].decode()
