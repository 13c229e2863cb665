"""Links relocatable ELF files to one image in memory.

    code        executable sections, then jumps to functions that are not defined here
    constants   read-only sections
    data        writable sections

Each part begins on a page of its own, so that it can be protected. The word after a jump is its
target address; code that loads an address from the GOT reads it there. Unwind tables are left out:
no exception passes through compiled code.
"""

from __future__ import annotations

import struct
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from tilewright.runtime.relocations import MACHINES
from tilewright.support.elf import (
    ABSOLUTE,
    ALLOC,
    EXEC,
    FIRST_SPECIAL,
    LOCAL,
    MAGIC,
    NOBITS,
    NOTE,
    PROGBITS,
    REL,
    TLS,
    UNDEFINED,
    WRITE,
    Relocation,
    Section,
    Symbol,
    read_elf,
)
from tilewright.support.errors import InternalError, UserError

_JUMP = struct.Struct("<8sQ")
_UNWINDING: Final = ".eh_frame"


class Part(NamedTuple):
    """A range of pages of the image, and its protection."""

    begin: int
    end: int
    is_code: bool
    is_written: bool


def _is_loaded(section: Section) -> bool:
    """Whether it is loaded: neither unwind tables nor notes are."""
    is_plain = section.name != _UNWINDING and section.kind != NOTE
    return bool(section.flags & ALLOC) and is_plain


def _rights(section: Section) -> tuple[bool, bool]:
    """Whether it is executable, and whether it is writable."""
    return bool(section.flags & EXEC), bool(section.flags & WRITE)


@dataclass(slots=True)
class _Object:
    """One parsed file; `places` are the offsets of its sections in the image."""

    number: int
    machine: int
    sections: list[Section]
    symbols: list[Symbol]
    relocations: list[Relocation]
    places: dict[int, int] = field(default_factory=dict[int, int])

    def key(self, symbol: int) -> Hashable:
        """An identifier of a symbol that is unique among all objects."""
        found = self.symbols[symbol]
        return (self.number, symbol) if found.binding == LOCAL else found.name

    @property
    def is_plain(self) -> bool:
        """Whether this linker supports everything in it."""
        if self.machine not in MACHINES or any(s.kind == REL for s in self.sections):
            return False
        loaded = [s for s in self.sections if _is_loaded(s)]
        kinds = MACHINES[self.machine].relocations
        return (
            all(s.kind in (PROGBITS, NOBITS) and not s.flags & TLS for s in loaded)
            and all(_is_placed(s) for s in self.symbols)
            and all(r.kind in kinds and self._is_inside(r) for r in self.relocations)
        )

    def _is_inside(self, relocation: Relocation) -> bool:
        return relocation.offset + 4 <= self.sections[relocation.section].size


def _is_placed(symbol: Symbol) -> bool:
    """Whether it is in a section, undefined, or absolute; common symbols are not supported."""
    return symbol.section < FIRST_SPECIAL or symbol.section == ABSOLUTE


def image_of(objects: Sequence[bytes], page: int) -> Image | None:
    """The image of object files; None if LLVM's linker is needed."""
    if not objects or not all(code.startswith(MAGIC) for code in objects):
        return None
    try:
        parts = [_take_apart(number, code) for number, code in enumerate(objects)]
        return Image(parts, page) if all(p.is_plain for p in parts) else None
    except (struct.error, IndexError, ValueError):
        raise _damaged() from None


def _damaged() -> UserError:
    return UserError(
        "cannot load object code", reason="it is damaged", remedy="compile the model again"
    )


class Image:
    """Code, constants and data of several files, laid out; `placed` relocates them."""

    def __init__(self, objects: Sequence[_Object], page: int) -> None:
        self._objects = objects
        self._machine = MACHINES[objects[0].machine]
        #: The offsets of the jumps, by their target symbols.
        self._jumps: dict[Hashable, int] = {}
        self.parts: list[Part] = []
        self.size = 0
        for rights in ((True, False), (False, False), (False, True), (True, True)):
            self._lay_out(rights, page)
        #: The offsets of the defined names.
        self.symbols = self._defined()

    def placed(self, base: int, imports: Mapping[str, int]) -> bytearray:
        """The image relocated to the address `base`."""
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
                if _is_loaded(section) and _rights(section) == rights:
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
        """Symbols reached through a jump or a GOT entry."""
        symbols = (s for item in self._objects for s in item.symbols)
        here = {s.name for s in symbols if s.section != UNDEFINED}
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
                if symbol.binding == LOCAL or symbol.section not in item.places:
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
    if symbol.section == ABSOLUTE:
        return symbol.value
    if symbol.section == UNDEFINED:
        # A weak symbol may stay undefined.
        return known.get(symbol.name, 0)
    return base + item.places[symbol.section] + symbol.value


# ---- reading ------------------------------------------------------------------------------------


def _take_apart(number: int, code: bytes) -> _Object:
    file = read_elf(code)
    used = [r for r in file.relocations() if _is_loaded(file.sections[r.section])]
    return _Object(number, file.machine, file.sections, file.symbols, used)
