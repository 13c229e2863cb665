"""ELF relocations by machine and number.

S is the symbol's address, A the addend, P the address of the relocated field, G the address of the
GOT entry for S. Only the kinds that LLVM emits for position-independent code are here; files with
others are left to LLVM's own linker.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final, NamedTuple

from tilewright.support.errors import InternalError

#: Writes to the image at an offset, given the target address and that of the field.
Write = Callable[[bytearray, int, int, int], None]


class RelocationKind(NamedTuple):
    """`aims_at` is the target of the address: the symbol, a jump to it, or its GOT entry."""

    aims_at: str
    write: Write


class Machine(NamedTuple):
    """The linking conventions of a processor architecture."""

    relocations: dict[int, RelocationKind]
    #: Jumps to the address stored after it.
    jump: bytes


def _word(bits: int, distance: bool) -> Write:
    """An integer of this many bits: an address, or its distance from the field."""
    form = {32: "<i", 64: "<q"}[bits]

    def write(image: bytearray, at: int, target: int, place: int) -> None:
        value = target - place if distance else target
        _require(bits == 64 or -(1 << 31) <= value < 1 << 31)
        struct.pack_into(form, image, at, value)

    return write


def _low_bits(shift: int) -> Write:
    """The low 12 bits of an address, in units of the access size, in an AArch64 instruction."""

    def write(image: bytearray, at: int, target: int, place: int) -> None:
        del place
        _require(target % (1 << shift) == 0)
        _set_bits(image, at, 10, 12, (target & 0xFFF) >> shift)

    return write


def _page_distance(image: bytearray, at: int, target: int, place: int) -> None:
    """ADRP: the distance in pages of 4 KB."""
    pages = (target >> 12) - (place >> 12)
    _require(-(1 << 20) <= pages < 1 << 20)
    _set_bits(image, at, 29, 2, pages & 3)
    _set_bits(image, at, 5, 19, pages >> 2)


def _branch(image: bytearray, at: int, target: int, place: int) -> None:
    """B and BL: the distance in instructions, 26 bits."""
    distance = target - place
    _require(distance % 4 == 0 and -(1 << 27) <= distance < 1 << 27)
    _set_bits(image, at, 0, 26, distance >> 2)


def _set_bits(image: bytearray, at: int, first: int, count: int, value: int) -> None:
    mask = (1 << count) - 1
    (word,) = struct.unpack_from("<I", image, at)
    struct.pack_into("<I", image, at, word & ~(mask << first) | (value & mask) << first)


def _require(fits: bool) -> None:
    if not fits:
        raise InternalError("cannot link object code", reason="an address is out of reach")


_AARCH64 = Machine(
    {
        257: RelocationKind("symbol", _word(64, False)),
        260: RelocationKind("symbol", _word(64, True)),
        261: RelocationKind("symbol", _word(32, True)),
        275: RelocationKind("symbol", _page_distance),
        277: RelocationKind("symbol", _low_bits(0)),
        278: RelocationKind("symbol", _low_bits(0)),
        284: RelocationKind("symbol", _low_bits(1)),
        285: RelocationKind("symbol", _low_bits(2)),
        286: RelocationKind("symbol", _low_bits(3)),
        299: RelocationKind("symbol", _low_bits(4)),
        282: RelocationKind("jump", _branch),
        283: RelocationKind("jump", _branch),
        311: RelocationKind("written", _page_distance),
        312: RelocationKind("written", _low_bits(3)),
    },
    # ldr x16, #8; br x16
    jump=bytes.fromhex("50000058 00021fd6"),
)
_X86_64 = Machine(
    {
        1: RelocationKind("symbol", _word(64, False)),
        24: RelocationKind("symbol", _word(64, True)),
        2: RelocationKind("symbol", _word(32, True)),
        4: RelocationKind("jump", _word(32, True)),
        9: RelocationKind("written", _word(32, True)),
        41: RelocationKind("written", _word(32, True)),
        42: RelocationKind("written", _word(32, True)),
    },
    # jmp [rip + 2]; nop; nop
    jump=bytes.fromhex("ff2502000000 9090"),
)

#: By the machine number in ELF files.
MACHINES: Final = {183: _AARCH64, 62: _X86_64}
