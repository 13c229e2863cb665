"""Relocatable ELF files as one image in memory: a linker for code that runs where it is made.

    code        sections that are run, then jumps to functions that are not defined here
    constants   sections that are only read
    data        sections that are written

Each part begins on a page of its own, so that it can be protected. The word after a jump is the
address that it goes to; code that reads an address from a table reads it there. Tables for
unwinding are left out: nothing throws through compiled code.
"""

from __future__ import annotations

import struct
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from tilewright.runtime.relocations import MACHINES
from tilewright.support.errors import InternalError, UserError

_MAGIC: Final = b"\x7fELF\x02\x01"
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELA = struct.Struct("<QQq")
_JUMP = struct.Struct("<8sQ")
_PROGBITS, _SYMTAB, _RELA_KIND, _NOBITS, _REL = 1, 2, 4, 8, 9
_WRITE, _ALLOC, _EXEC, _TLS = 1, 2, 4, 0x400
_UNDEFINED, _FIRST_SPECIAL, _ABSOLUTE = 0, 0xFF00, 0xFFF1
_LOCAL: Final = 0
_UNWINDING: Final = ".eh_frame"


class Part(NamedTuple):
    """A range of the image, from page to page, and what may be done with it."""

    begin: int
    end: int
    is_code: bool
    is_written: bool


class _Section(NamedTuple):
    name: str
    kind: int
    flags: int
    data: bytes
    size: int
    info: int
    alignment: int

    @property
    def is_loaded(self) -> bool:
        return bool(self.flags & _ALLOC) and self.name != _UNWINDING

    @property
    def rights(self) -> tuple[bool, bool]:
        """Whether it is code, and whether it is written."""
        return bool(self.flags & _EXEC), bool(self.flags & _WRITE)


class _Symbol(NamedTuple):
    name: str
    binding: int
    section: int
    value: int


class _Relocation(NamedTuple):
    section: int
    offset: int
    kind: int
    symbol: int
    addend: int


@dataclass(slots=True)
class _Object:
    """One file, taken apart; `places` are the offsets that its sections get."""

    number: int
    machine: int
    sections: list[_Section]
    symbols: list[_Symbol]
    relocations: list[_Relocation]
    places: dict[int, int] = field(default_factory=dict[int, int])

    def key(self, symbol: int) -> Hashable:
        """What tells a symbol from those of all objects."""
        found = self.symbols[symbol]
        return (self.number, symbol) if found.binding == _LOCAL else found.name

    @property
    def is_plain(self) -> bool:
        """Whether there is nothing in it but what can be linked here."""
        if self.machine not in MACHINES or any(s.kind == _REL for s in self.sections):
            return False
        loaded = [s for s in self.sections if s.is_loaded]
        kinds = MACHINES[self.machine].relocations
        return (
            all(s.kind in (_PROGBITS, _NOBITS) and not s.flags & _TLS for s in loaded)
            and all(_is_placed(s) for s in self.symbols)
            and all(r.kind in kinds and self._is_inside(r) for r in self.relocations)
        )

    def _is_inside(self, relocation: _Relocation) -> bool:
        return relocation.offset + 4 <= self.sections[relocation.section].size


def _is_placed(symbol: _Symbol) -> bool:
    """Whether it is in a section, undefined, or a number; not memory that is yet to be found."""
    return symbol.section < _FIRST_SPECIAL or symbol.section == _ABSOLUTE


def image_of(objects: Sequence[bytes], page: int) -> Image | None:
    """The image of object files; None if there is something in them for LLVM's linker."""
    if not objects or not all(code.startswith(_MAGIC) for code in objects):
        return None
    try:
        parts = [_take_apart(number, code) for number, code in enumerate(objects)]
        return Image(parts, page) if all(p.is_plain for p in parts) else None
    except (struct.error, IndexError, ValueError, UnicodeDecodeError):
        raise _damaged() from None


def _damaged() -> UserError:
    return UserError(
        "cannot load object code", reason="it is damaged", remedy="compile the model again"
    )


class Image:
    """Code, constants and data of several files, laid out; `placed` ties them to addresses."""

    def __init__(self, objects: Sequence[_Object], page: int) -> None:
        self._objects = objects
        self._machine = MACHINES[objects[0].machine]
        #: Where the jumps lie, by the symbols that they go to.
        self._jumps: dict[Hashable, int] = {}
        self.parts: list[Part] = []
        self.size = 0
        for rights in ((True, False), (False, False), (False, True), (True, True)):
            self._lay_out(rights, page)
        #: Where the names that are defined lie in the image.
        self.symbols = self._defined()

    def placed(self, base: int, imports: Mapping[str, int]) -> bytearray:
        """The image as it must be at the address `base`."""
        image = bytearray(self.size)
        known = {name: base + place for name, place in self.symbols.items()}
        known = {**imports, **known}
        for item in self._objects:
            for number, place in item.places.items():
                data = item.sections[number].data
                image[place : place + len(data)] = data
            try:
                self._relocate(image, item, base, known)
            except (struct.error, IndexError, KeyError):
                raise _damaged() from None
        return image

    # ---- layout ---------------------------------------------------------------------------------

    def _lay_out(self, rights: tuple[bool, bool], page: int) -> None:
        begin = self.size
        for item in self._objects:
            for number, section in enumerate(item.sections):
                if section.is_loaded and section.rights == rights:
                    item.places[number] = self._take(section.size, section.alignment)
        if rights == (True, False):
            for key in self._far_symbols():
                if key not in self._jumps:
                    self._jumps[key] = self._take(_JUMP.size, _JUMP.size)
        if self.size > begin:
            self._take(0, page)
            self.parts.append(Part(begin, self.size, *rights))

    def _take(self, size: int, alignment: int) -> int:
        start = -(-self.size // max(1, alignment)) * max(1, alignment)
        self.size = start + size
        return start

    def _far_symbols(self) -> Iterator[Hashable]:
        """Those that are reached by a jump, or by an address that is written down."""
        symbols = (s for item in self._objects for s in item.symbols)
        here = {s.name for s in symbols if s.section != _UNDEFINED}
        for item in self._objects:
            for relocation in item.relocations:
                aims_at = self._machine.relocations[relocation.kind].aims_at
                is_far = item.symbols[relocation.symbol].name not in here
                if aims_at == "written" or (aims_at == "jump" and is_far):
                    yield item.key(relocation.symbol)

    def _defined(self) -> dict[str, int]:
        symbols: dict[str, int] = {}
        for item in self._objects:
            for symbol in item.symbols:
                if symbol.binding == _LOCAL or symbol.section not in item.places:
                    continue
                if symbol.name in symbols:
                    reason = f"{symbol.name} is defined twice"
                    raise InternalError("cannot link object code", reason=reason)
                symbols[symbol.name] = item.places[symbol.section] + symbol.value
        return symbols

    # ---- addresses ------------------------------------------------------------------------------

    def _relocate(
        self, image: bytearray, item: _Object, base: int, known: Mapping[str, int]
    ) -> None:
        for section, offset, kind, number, addend in item.relocations:
            aims_at, write = self._machine.relocations[kind]
            target = _address(item, number, base, known)
            jump = None if aims_at == "symbol" else self._jumps.get(item.key(number))
            if jump is not None:
                _JUMP.pack_into(image, jump, self._machine.jump, target)
                target = base + jump + (8 if aims_at == "written" else 0)
            at = item.places[section] + offset
            write(image, at, target + addend, base + at)


def _address(item: _Object, number: int, base: int, known: Mapping[str, int]) -> int:
    symbol = item.symbols[number]
    if symbol.section == _ABSOLUTE:
        return symbol.value
    if symbol.section == _UNDEFINED:
        # A name that nobody defines may be left out where it is weak.
        return known.get(symbol.name, 0)
    return base + item.places[symbol.section] + symbol.value


# ---- reading ------------------------------------------------------------------------------------


def _take_apart(number: int, code: bytes) -> _Object:
    (machine,) = struct.unpack_from("<H", code, 18)
    (start,) = struct.unpack_from("<Q", code, 40)
    count, names_at = struct.unpack_from("<HH", code, 60)
    raw = [_SECTION.unpack_from(code, start + k * _SECTION.size) for k in range(count)]
    sections = [_section(code, raw[names_at][4], r) for r in raw]
    return _Object(number, machine, sections, _symbols(code, raw), _relocations(sections))


def _section(code: bytes, names: int, raw: tuple[int, ...]) -> _Section:
    name, kind, flags, _, offset, size, _, info, alignment, _ = raw
    data = b"" if kind == _NOBITS else code[offset : offset + size]
    return _Section(_text(code, names + name), kind, flags, data, size, info, alignment)


def _symbols(code: bytes, raw: Sequence[tuple[int, ...]]) -> list[_Symbol]:
    for _, kind, _, _, offset, size, link, *_ in raw:
        if kind == _SYMTAB:
            names, table = raw[link][4], code[offset : offset + size]
            entries = _SYMBOL.iter_unpack(table)
            return [
                _Symbol(_text(code, names + name), info >> 4, section, value)
                for name, info, _, section, value, _ in entries
            ]
    return []


def _relocations(sections: Sequence[_Section]) -> list[_Relocation]:
    return [
        _Relocation(s.info, offset, info & 0xFFFFFFFF, info >> 32, addend)
        for s in sections
        if s.kind == _RELA_KIND and sections[s.info].is_loaded
        for offset, info, addend in _RELA.iter_unpack(s.data)
    ]


def _text(code: bytes, at: int) -> str:
    return code[at : code.index(b"\0", at)].decode()
