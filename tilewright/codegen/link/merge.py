"""Merges relocatable ELF files into one, like `ld -r`.

Sections are kept and renumbered; symbols of the same name become one symbol. Only exported names
are visible from outside: a kernel called `main` does no harm to a program.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Final

from tilewright.codegen.link.data import DataSymbol
from tilewright.support.elf import (
    ALLOC,
    FIRST_SPECIAL,
    GLOBAL,
    GROUP,
    LOCAL,
    NOBITS,
    PROGBITS,
    REL,
    RELA_KIND,
    STRTAB,
    SYMTAB,
    UNDEFINED,
    DamagedError,
    ElfLayout,
    Section,
    Symbol,
    layout_of,
    read_elf,
)
from tilewright.support.errors import InternalError, UserError
from tilewright.support.memory import ALIGNMENT

#: Sections that are rebuilt (symbols, strings) or dropped: those that list symbols by number.
_DROPPED: Final = {0, SYMTAB, STRTAB, 0x6FFF4C03}
#: The type of build attributes (Arm's and RISC-V's), of which a file has one section.
_ATTRIBUTES: Final = 0x70000003


@dataclass
class _Object:
    """One parsed file; `numbers` maps its section numbers to those in the result."""

    machine: int
    flags: int
    sections: list[Section]
    symbols: list[Symbol]
    layout: ElfLayout
    numbers: dict[int, int] = field(default_factory=dict[int, int])


def merge(objects: Sequence[bytes], data: DataSymbol, exported: Collection[str]) -> bytes:
    """One relocatable file of all objects, with `data` in a section of its own."""
    return _Merger([_parsed(o) for o in objects], data, frozenset(exported)).merged()


# ---- reading ------------------------------------------------------------------------------------


def _parsed(code: bytes) -> _Object:
    if layout_of(code) is None:
        raise UserError(
            "cannot export a library for this target",
            reason="its object files are neither ELF, Mach-O nor COFF",
            remedy="compile the model for Linux, macOS or Windows, or save an artifact",
        )
    try:
        file = read_elf(code)
    except DamagedError as error:
        raise UserError("cannot export the model", reason=f"its code is damaged: {error}") from None
    if any(s.kind == GROUP for s in file.sections):
        raise InternalError("cannot merge object files", reason="a section is part of a group")
    return _Object(file.machine, file.flags, file.sections, file.symbols, file.layout)


# ---- writing ------------------------------------------------------------------------------------


class _Merger:
    def __init__(self, objects: list[_Object], data: DataSymbol, exported: frozenset[str]) -> None:
        self._objects, self._data, self._exported = objects, data, exported
        self._layout = objects[0].layout
        self._sections: list[Section] = [Section("", 0, 0, b"", 0, 0, 0, 0, 0)]
        #: Local symbols, with the object and number of each where it has one.
        self._locals: list[tuple[Symbol, tuple[int, int] | None]] = []
        self._named: dict[str, Symbol] = {}

    def merged(self) -> bytes:
        for item in self._objects:
            self._number(item)
        self._collect()
        data_section = len(self._sections)
        self._sections.append(
            Section(".rodata.params", PROGBITS, ALLOC, b"", self._data.size, 0, 0, ALIGNMENT, 0)
        )
        self._define_data(data_section)
        order, index = self._ordered()
        symtab = len(self._sections)
        for k, item in enumerate(self._objects):
            self._relocate(item, k, index, symtab)
        first_global = 1 + sum(s.binding == LOCAL for s in order)
        self._add_tables(order, first_global)
        return self._file()

    def _number(self, item: _Object) -> None:
        for k, section in enumerate(item.sections):
            is_remark = section.name == ".comment"
            is_told = section.kind == _ATTRIBUTES and item is not self._objects[0]
            if section.kind in _DROPPED or is_remark or is_told:
                continue
            item.numbers[k] = len(self._sections)
            self._sections.append(section)

    def _collect(self) -> None:
        for k, item in enumerate(self._objects):
            for number, symbol in enumerate(item.symbols[1:], start=1):
                moved = self._moved(item, symbol)
                if moved is None:
                    continue
                if symbol.binding == LOCAL:
                    self._locals.append((moved, (k, number)))
                else:
                    self._add_global(moved)

    def _moved(self, item: _Object, symbol: Symbol) -> Symbol | None:
        section = symbol.section
        if UNDEFINED < section < FIRST_SPECIAL:
            if section not in item.numbers:
                return None
            section = item.numbers[section]
        return symbol._replace(section=section)

    def _add_global(self, symbol: Symbol) -> None:
        known = self._named.get(symbol.name)
        if known is None or known.section == UNDEFINED:
            is_needed = known is not None and known.binding == GLOBAL
            if symbol.section == UNDEFINED and is_needed:
                return
            self._named[symbol.name] = symbol
        elif symbol.section != UNDEFINED:
            raise InternalError("cannot merge object files", reason=f"{symbol.name} is there twice")

    def _define_data(self, section: int) -> None:
        self._named[self._data.name] = Symbol(
            self._data.name, GLOBAL << 4 | 1, 0, section, 0, self._data.size
        )

    def _ordered(self) -> tuple[list[Symbol], dict[object, int]]:
        """All symbols, local ones first, and the index of each."""
        order: list[Symbol] = []
        index: dict[object, int] = {}
        for symbol, key in self._locals:
            order.append(symbol)
            index[key] = len(order)
        hidden = [n for n, s in self._named.items() if s.section and n not in self._exported]
        for name in hidden:
            symbol = self._named[name]
            self._named[name] = symbol._replace(info=LOCAL << 4 | symbol.info & 15)
        for name in [*hidden, *(n for n in self._named if n not in set(hidden))]:
            order.append(self._named[name])
            index[name] = len(order)
        return order, index

    def _relocate(self, item: _Object, k: int, index: dict[object, int], symtab: int) -> None:
        """Renumber the sections and symbols in an object's relocations."""
        for old, new in item.numbers.items():
            section = item.sections[old]
            if section.kind in (REL, RELA_KIND):
                data = self._relocations(section, item, k, index)
                target = item.numbers[section.info]
                self._sections[new] = section._replace(data=data, link=symtab, info=target)
            elif section.link:
                self._sections[new] = section._replace(link=item.numbers.get(section.link, 0))

    def _relocations(
        self, section: Section, item: _Object, k: int, index: dict[object, int]
    ) -> bytes:
        row = self._layout.rel if section.kind == REL else self._layout.rela
        shift = self._layout.symbol_shift
        entries: list[bytes] = []
        for offset, info, *addend in row.iter_unpack(section.data):
            number: int = info >> shift
            symbol = item.symbols[number]
            key: object = (k, number) if symbol.binding == LOCAL else symbol.name
            now = index[key] if number else 0
            entries.append(row.pack(offset, now << shift | info & ((1 << shift) - 1), *addend))
        return b"".join(entries)

    def _add_tables(self, order: Sequence[Symbol], first_global: int) -> None:
        names, layout = _Strings(), self._layout
        rows = [bytes(layout.symbol.size)]
        rows += [layout.write_symbol(s, names.add(s.name)) for s in order]
        table, text = b"".join(rows), bytes(names.data)
        link = len(self._sections) + 1
        self._sections.append(
            Section(
                ".symtab", SYMTAB, 0, table, len(table), link, first_global, 8, layout.symbol.size
            )
        )
        self._sections.append(Section(".strtab", STRTAB, 0, text, len(text), 0, 0, 1, 0))

    def _file(self) -> bytes:
        names = _Strings()
        offsets = [names.add(s.name) for s in self._sections]
        offsets.append(names.add(".shstrtab"))
        text = bytes(names.data)
        sections = [
            *self._sections,
            Section(".shstrtab", STRTAB, 0, text, len(text), 0, 0, 1, 0),
        ]
        if len(sections) >= FIRST_SPECIAL:
            raise UserError(
                "cannot export the model as a library",
                reason=f"it has {len(sections)} sections, and an object file {FIRST_SPECIAL}",
                remedy="save it as an artifact",
            )
        head = self._layout.header.size
        parts: list[bytes | memoryview] = [bytes(head)]
        at, rows = head, list[bytes]()
        for name, s in zip(offsets, sections, strict=True):
            filling = -at % max(1, s.alignment)
            parts.append(bytes(filling))
            at += filling
            rows.append(
                self._layout.section.pack(
                    name,
                    s.kind,
                    s.flags,
                    0,
                    at if s.kind else 0,
                    s.size,
                    s.link,
                    s.info,
                    s.alignment,
                    s.entry_size,
                )
            )
            content = self._data.parts if s.name == ".rodata.params" else [s.data]
            parts.extend(content)
            at += 0 if s.kind == NOBITS else s.size
        parts.append(bytes(-at % 8))
        parts[0] = self._header(at + -at % 8, len(sections))
        return b"".join([*parts, *rows])

    def _header(self, table_at: int, count: int) -> bytes:
        first = self._objects[0]
        layout = self._layout
        ident = layout.magic + b"\x01" + bytes(9)
        sizes = (layout.header.size, 0, 0, layout.section.size, count, count - 1)
        flags = 0
        for item in self._objects:
            flags |= item.flags
        return layout.header.pack(ident, 1, first.machine, 1, 0, 0, table_at, flags, *sizes)


class _Strings:
    """A string table."""

    def __init__(self) -> None:
        self.data = bytearray(b"\0")
        self._places: dict[str, int] = {"": 0}

    def add(self, text: str) -> int:
        if text not in self._places:
            self._places[text] = len(self.data)
            self.data += text.encode() + b"\0"
        return self._places[text]
