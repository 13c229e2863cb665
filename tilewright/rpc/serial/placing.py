"""Relocates object code for a processor without an operating system.

Read-only data and code come first, then zero-initialized data. Only the relocations that LLVM emits
for such targets are supported: Thumb's, with addends in place, and RISC-V's.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final, NamedTuple

from tilewright.support.elf import (
    ABSOLUTE,
    ALLOC,
    NOBITS,
    PROGBITS,
    REL,
    RELA_KIND,
    UNDEFINED,
    DamagedError,
    Elf,
    read_elf,
)
from tilewright.support.errors import InternalError, UserError

#: Writes to the image at an offset; takes the symbol's address, the addend (None: it is in place),
#: and the address of the field.
_Write = Callable[[bytearray, int, int, int | None, int], None]


class _Place(NamedTuple):
    """A relocation: a field of the image that depends on a symbol's address."""

    at: int
    kind: int
    symbol: int
    addend: int | None


class BoardImage:
    """Sections of one object file, laid out; `placed` relocates them to an address."""

    def __init__(self, code: bytes) -> None:
        try:
            self._file = read_elf(code)
            loaded = [k for k in range(len(self._file.sections)) if _is_loaded(self._file, k)]
            self._data_bytes, self._places = 0, dict[int, int]()
            self.size = 0
            for number in sorted(loaded, key=lambda k: self._file.sections[k].kind == NOBITS):
                section = self._file.sections[number]
                step = max(1, section.alignment)
                self._places[number] = -(-self.size // step) * step
                self.size = self._places[number] + section.size
                if section.kind != NOBITS:
                    self._data_bytes = self.size
            self._relocated = _relocated(self._file, self._places)
        except (struct.error, IndexError, DamagedError):
            raise _damaged() from None

    @property
    def machine(self) -> int:
        return self._file.machine

    def placed(self, base: int) -> bytes:
        """The image relocated to an aligned address; the rest of its size is zeros."""
        writers, image = _WRITERS.get(self.machine, {}), bytearray(self._data_bytes)
        for number, place in self._places.items():
            data = self._file.sections[number].data
            image[place : place + len(data)] = data
        try:
            for at, kind, symbol, addend in self._relocated:
                if kind not in writers:
                    reason = f"relocations of kind {kind} are not known"
                    raise InternalError("cannot link code for a board", reason=reason)
                writers[kind](image, at, self._address(symbol, base), addend, base + at)
        except (struct.error, IndexError):
            raise _damaged() from None
        return bytes(image)

    def _address(self, number: int, base: int) -> int:
        symbol = self._file.symbols[number]
        if symbol.section == ABSOLUTE:
            return symbol.value
        if symbol.section == UNDEFINED or symbol.section not in self._places:
            raise UserError(
                "cannot load the code on the board",
                reason=f"it calls {symbol.name or 'what is not in it'}, of the compiler's library,"
                " which the monitor does not have",
                remedy="choose a processor with floating-point instructions, quantize the model,"
                " or link it into firmware of your own",
            )
        return base + self._places[symbol.section] + symbol.value

    def address_of(self, name: str, base: int) -> int:
        """The address of a symbol in the image relocated to `base`."""
        for number, symbol in enumerate(self._file.symbols):
            if symbol.name == name and symbol.section in self._places:
                return self._address(number, base)
        raise InternalError("cannot link code for a board", reason=f"there is no {name} in it")


def _is_loaded(file: Elf, number: int) -> bool:
    """Whether the section is needed at run time; unwind tables have other types."""
    section = file.sections[number]
    return bool(section.flags & ALLOC) and section.kind in (PROGBITS, NOBITS)


def _relocated(file: Elf, places: dict[int, int]) -> list[_Place]:
    found = list[_Place]()
    for section in file.sections:
        if section.kind not in (REL, RELA_KIND) or section.info not in places:
            continue
        begin = places[section.info]
        form = file.layout.rel if section.kind == REL else file.layout.rela
        for offset, info, *addend in form.iter_unpack(section.data):
            kind, symbol = info & 0xFF, info >> file.layout.symbol_shift
            found.append(_Place(begin + offset, kind, symbol, addend[0] if addend else None))
    return found


def _damaged() -> UserError:
    return UserError(
        "cannot load object code", reason="it is damaged", remedy="compile the model again"
    )


def _require(fits: bool) -> None:
    if not fits:
        raise InternalError("cannot link code for a board", reason="an address is out of reach")


def _signed(value: int, bits: int) -> int:
    return (value & (1 << bits) - 1) - ((value & 1 << bits - 1) << 1)


# ---- any machine --------------------------------------------------------------------------------


def _word(image: bytearray, at: int, target: int, addend: int | None, place: int) -> None:
    """S + A."""
    del place
    own = struct.unpack_from("<I", image, at)[0] if addend is None else addend
    struct.pack_into("<I", image, at, (target + own) & 0xFFFF_FFFF)


# ---- Thumb --------------------------------------------------------------------------------------


def _thumb_branch(image: bytearray, at: int, target: int, addend: int | None, place: int) -> None:
    """BL and B.W: 24 bits of the distance in half words, two of them XORed with the sign."""
    high, low = struct.unpack_from("<HH", image, at)
    sign, j1, j2 = high >> 10 & 1, low >> 13 & 1, low >> 11 & 1
    folded = sign << 24 | (1 ^ j1 ^ sign) << 23 | (1 ^ j2 ^ sign) << 22
    own = _signed(folded | (high & 0x3FF) << 12 | (low & 0x7FF) << 1, 25)
    distance = (target & ~1) + (own if addend is None else addend) - place
    _require(-(1 << 24) <= distance < 1 << 24)
    sign = distance >> 24 & 1
    j1, j2 = (1 ^ (distance >> k & 1) ^ sign for k in (23, 22))
    high = high & 0xF800 | sign << 10 | distance >> 12 & 0x3FF
    low = low & 0xD000 | j1 << 13 | j2 << 11 | distance >> 1 & 0x7FF
    struct.pack_into("<HH", image, at, high, low)


def _thumb_half(shift: int) -> _Write:
    """MOVW and MOVT: 16 bits of an address, in four fields."""

    def write(image: bytearray, at: int, target: int, addend: int | None, place: int) -> None:
        del place
        high, low = struct.unpack_from("<HH", image, at)
        own = (high & 0xF) << 12 | (high >> 10 & 1) << 11 | (low >> 12 & 7) << 8 | low & 0xFF
        value = target + (_signed(own, 16) if addend is None else addend) >> shift
        high = high & 0xFBF0 | value >> 12 & 0xF | (value >> 11 & 1) << 10
        low = low & 0x8F00 | (value >> 8 & 7) << 12 | value & 0xFF
        struct.pack_into("<HH", image, at, high, low)

    return write


# ---- RISC-V -------------------------------------------------------------------------------------


def _upper(image: bytearray, at: int, value: int) -> None:
    """LUI and AUIPC: the upper 20 bits, rounded, since the lower 12 are signed."""
    (word,) = struct.unpack_from("<I", image, at)
    struct.pack_into("<I", image, at, word & 0xFFF | value + 0x800 & 0xFFFF_F000)


def _lower(image: bytearray, at: int, value: int) -> None:
    (word,) = struct.unpack_from("<I", image, at)
    struct.pack_into("<I", image, at, word & 0xF_FFFF | (value & 0xFFF) << 20)


def _riscv_call(image: bytearray, at: int, target: int, addend: int | None, place: int) -> None:
    """AUIPC and JALR."""
    distance = target + (addend or 0) - place
    _upper(image, at, distance)
    _lower(image, at + 4, distance)


def _riscv_upper(image: bytearray, at: int, target: int, addend: int | None, place: int) -> None:
    del place
    _upper(image, at, target + (addend or 0))


def _riscv_lower(image: bytearray, at: int, target: int, addend: int | None, place: int) -> None:
    del place
    _lower(image, at, target + (addend or 0))


def _riscv_store(image: bytearray, at: int, target: int, addend: int | None, place: int) -> None:
    """The lower 12 bits in a store, in two fields."""
    del place
    value = target + (addend or 0)
    (word,) = struct.unpack_from("<I", image, at)
    word = word & 0x01FF_F07F | (value >> 5 & 0x7F) << 25 | (value & 0x1F) << 7
    struct.pack_into("<I", image, at, word)


#: By machine number in ELF files, and by relocation number.
_WRITERS: Final[dict[int, dict[int, _Write]]] = {
    40: {
        2: _word,
        10: _thumb_branch,
        30: _thumb_branch,
        47: _thumb_half(0),
        48: _thumb_half(16),
    },
    243: {
        1: _word,
        18: _riscv_call,
        19: _riscv_call,
        26: _riscv_upper,
        27: _riscv_lower,
        28: _riscv_store,
    },
}
