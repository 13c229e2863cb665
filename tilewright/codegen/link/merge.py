"""Several relocatable ELF files as one, like `ld -r`.

Sections stay as they are and get new numbers; symbols of one name become one symbol. Only names
that are exported can be seen from outside: a kernel called `main` harms no program.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from tilewright.support.errors import InternalError, UserError

_MAGIC: Final = b"\x7fELF\x02\x01"
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELA = struct.Struct("<QQq")
_PROGBITS, _SYMTAB, _STRTAB, _RELA_KIND, _NOBITS, _REL, _GROUP = 1, 2, 3, 4, 8, 9, 17
#: Tables that are made anew, and lists of symbols by number that are of no use any more.
_DROPPED: Final = {0, _SYMTAB, _STRTAB, 0x6FFF4C03}
_UNDEFINED, _FIRST_SPECIAL = 0, 0xFF00
_LOCAL, _GLOBAL = 0, 1
_ALLOC: Final = 2


class Data(NamedTuple):
    """Bytes that objects refer to by a name."""

    name: str
    parts: Sequence[bytes | memoryview]
    size: int


class _Section(NamedTuple):
    name: str
    kind: int
    flags: int
    data: bytes
    size: int
    link: int
    info: int
    alignment: int
    entry_size: int


@dataclass
class _Symbol:
    name: str
    info: int
    other: int
    section: int
    value: int
    size: int

    @property
    def binding(self) -> int:
        return self.info >> 4


@dataclass
class _Object:
    """One file, taken apart; `numbers` are those that its sections get."""

    machine: int
    flags: int
    sections: list[_Section]
    symbols: list[_Symbol]
    numbers: dict[int, int] = field(default_factory=dict[int, int])


def merge(objects: Sequence[bytes], data: Data, exported: Collection[str]) -> bytes:
    """One relocatable file of all objects, with `data` in a section of its own."""
    return _Merger([_take_apart(o) for o in objects], data, frozenset(exported)).merged()


# ---- reading ------------------------------------------------------------------------------------


def _take_apart(code: bytes) -> _Object:
    if not code.startswith(_MAGIC):
        raise UserError(
            "cannot export a library for this target",
            reason="its object files are not ELF",
            remedy="compile the model for Linux, or save an artifact",
        )
    head = _HEADER.unpack_from(code)
    machine, start, flags, count, names_at = head[2], head[6], head[7], head[12], head[13]
    raw = [_SECTION.unpack_from(code, start + k * _SECTION.size) for k in range(count)]
    names: int = raw[int(names_at)][4]
    sections = [_section(code, names, r) for r in raw]
    if any(s.kind == _GROUP for s in sections):
        raise InternalError("cannot merge object files", reason="a section is part of a group")
    return _Object(machine, flags, sections, _symbols(code, raw))


def _section(code: bytes, names: int, raw: tuple[int, ...]) -> _Section:
    name, kind, flags, _, offset, size, link, info, alignment, entry = raw
    data = b"" if kind == _NOBITS else code[offset : offset + size]
    return _Section(
        _text(code, names + name), kind, flags, data, size, link, info, alignment, entry
    )


def _symbols(code: bytes, raw: Sequence[tuple[int, ...]]) -> list[_Symbol]:
    for section in raw:
        if section[1] == _SYMTAB:
            offset, size, names = section[4], section[5], raw[section[6]][4]
            entries = (_SYMBOL.unpack_from(code, at) for at in range(offset, offset + size, 24))
            return [_Symbol(_text(code, names + name), *rest) for name, *rest in entries]
    return []


def _text(code: bytes, at: int) -> str:
    return code[at : code.index(b"\0", at)].decode()


# ---- writing ------------------------------------------------------------------------------------


class _Merger:
    def __init__(self, objects: list[_Object], data: Data, exported: frozenset[str]) -> None:
        self._objects, self._data, self._exported = objects, data, exported
        self._sections: list[_Section] = [_Section("", 0, 0, b"", 0, 0, 0, 0, 0)]
        #: Symbols that stay inside, with the object and number of each where it has one.
        self._locals: list[tuple[_Symbol, tuple[int, int] | None]] = []
        self._named: dict[str, _Symbol] = {}

    def merged(self) -> bytes:
        for item in self._objects:
            self._number(item)
        self._collect()
        data_section = len(self._sections)
        self._sections.append(
            _Section(".rodata.params", _PROGBITS, _ALLOC, b"", self._data.size, 0, 0, 64, 0)
        )
        self._define_data(data_section)
        order, index = self._ordered()
        symtab = len(self._sections)
        for k, item in enumerate(self._objects):
            self._relocate(item, k, index, symtab)
        first_global = 1 + sum(s.binding == _LOCAL for s in order)
        self._add_tables(order, first_global)
        return self._file()

    def _number(self, item: _Object) -> None:
        for k, section in enumerate(item.sections):
            is_remark = section.name == ".comment"
            if section.kind in _DROPPED or is_remark:
                continue
            item.numbers[k] = len(self._sections)
            self._sections.append(section)

    def _collect(self) -> None:
        for k, item in enumerate(self._objects):
            for number, symbol in enumerate(item.symbols[1:], start=1):
                moved = self._moved(item, symbol)
                if moved is None:
                    continue
                if symbol.binding == _LOCAL:
                    self._locals.append((moved, (k, number)))
                else:
                    self._unite(moved)

    def _moved(self, item: _Object, symbol: _Symbol) -> _Symbol | None:
        section = symbol.section
        if _UNDEFINED < section < _FIRST_SPECIAL:
            if section not in item.numbers:
                return None
            section = item.numbers[section]
        return _Symbol(symbol.name, symbol.info, symbol.other, section, symbol.value, symbol.size)

    def _unite(self, symbol: _Symbol) -> None:
        known = self._named.get(symbol.name)
        if known is None or known.section == _UNDEFINED:
            is_needed = known is not None and known.binding == _GLOBAL
            if symbol.section == _UNDEFINED and is_needed:
                return
            self._named[symbol.name] = symbol
        elif symbol.section != _UNDEFINED:
            raise InternalError("cannot merge object files", reason=f"{symbol.name} is there twice")

    def _define_data(self, section: int) -> None:
        self._named[self._data.name] = _Symbol(
            self._data.name, _GLOBAL << 4 | 1, 0, section, 0, self._data.size
        )

    def _ordered(self) -> tuple[list[_Symbol], dict[object, int]]:
        """All symbols, those that stay inside first, and the number of each."""
        order: list[_Symbol] = []
        index: dict[object, int] = {}
        for symbol, key in self._locals:
            order.append(symbol)
            index[key] = len(order)
        hidden = [n for n, s in self._named.items() if s.section and n not in self._exported]
        for name in hidden:
            symbol = self._named[name]
            symbol.info = _LOCAL << 4 | symbol.info & 15
        for name in [*hidden, *(n for n in self._named if n not in set(hidden))]:
            order.append(self._named[name])
            index[name] = len(order)
        return order, index

    def _relocate(self, item: _Object, k: int, index: dict[object, int], symtab: int) -> None:
        """Make relocations of an object name sections and symbols by their new numbers."""
        for old, new in item.numbers.items():
            section = item.sections[old]
            if section.kind == _REL:
                raise InternalError("cannot merge object files", reason="relocations of 16 bytes")
            if section.kind == _RELA_KIND:
                data = self._relocations(section.data, item, k, index)
                target = item.numbers[section.info]
                self._sections[new] = section._replace(data=data, link=symtab, info=target)
            elif section.link:
                self._sections[new] = section._replace(link=item.numbers.get(section.link, 0))

    def _relocations(self, data: bytes, item: _Object, k: int, index: dict[object, int]) -> bytes:
        entries: list[bytes] = []
        for offset, info, addend in _RELA.iter_unpack(data):
            number: int = info >> 32
            symbol = item.symbols[number]
            key: object = (k, number) if symbol.binding == _LOCAL else symbol.name
            entries.append(
                _RELA.pack(offset, (index[key] if number else 0) << 32 | info & 0xFFFFFFFF, addend)
            )
        return b"".join(entries)

    def _add_tables(self, order: Sequence[_Symbol], first_global: int) -> None:
        names = _Strings()
        rows = [_SYMBOL.pack(0, 0, 0, 0, 0, 0)]
        for s in order:
            rows.append(
                _SYMBOL.pack(names.add(s.name), s.info, s.other, s.section, s.value, s.size)
            )
        table, text = b"".join(rows), bytes(names.data)
        link = len(self._sections) + 1
        self._sections.append(
            _Section(".symtab", _SYMTAB, 0, table, len(table), link, first_global, 8, 24)
        )
        self._sections.append(_Section(".strtab", _STRTAB, 0, text, len(text), 0, 0, 1, 0))

    def _file(self) -> bytes:
        names = _Strings()
        offsets = [names.add(s.name) for s in self._sections]
        offsets.append(names.add(".shstrtab"))
        text = bytes(names.data)
        sections = [
            *self._sections,
            _Section(".shstrtab", _STRTAB, 0, text, len(text), 0, 0, 1, 0),
        ]
        if len(sections) >= _FIRST_SPECIAL:
            raise UserError(
                "cannot export the model as a library",
                reason=f"it has {len(sections)} sections, and an object file {_FIRST_SPECIAL}",
                remedy="save it as an artifact",
            )
        parts: list[bytes | memoryview] = [bytes(_HEADER.size)]
        at, rows = _HEADER.size, list[bytes]()
        for name, s in zip(offsets, sections, strict=True):
            filling = -at % max(1, s.alignment)
            parts.append(bytes(filling))
            at += filling
            rows.append(
                _SECTION.pack(
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
            at += 0 if s.kind == _NOBITS else s.size
        parts.append(bytes(-at % 8))
        parts[0] = self._header(at + -at % 8, len(sections))
        return b"".join([*parts, *rows])

    def _header(self, table_at: int, count: int) -> bytes:
        first = self._objects[0]
        ident = _MAGIC + b"\x01" + bytes(9)
        sizes = (_HEADER.size, 0, 0, _SECTION.size, count, count - 1)
        return _HEADER.pack(ident, 1, first.machine, 1, 0, 0, table_at, first.flags, *sizes)


class _Strings:
    """A table of texts that end in zero."""

    def __init__(self) -> None:
        self.data = bytearray(b"\0")
        self._places: dict[str, int] = {"": 0}

    def add(self, text: str) -> int:
        if text not in self._places:
            self._places[text] = len(self.data)
            self.data += text.encode() + b"\0"
        return self._places[text]
