"""Reads the names in a relocatable object file (little-endian ELF, or 64-bit Mach-O).

It tells before linking what a file defines and needs, so that a missing function becomes an error
with its name.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from tilewright.support.elf import ELF32, ELF64, LOCAL, RELOCATABLE, UNDEFINED, WEAK, read_elf
from tilewright.support.errors import UserError

_ELF_MACHINES = {
    (62, 64): "x86_64",
    (183, 64): "aarch64",
    (243, 64): "riscv64",
    (243, 32): "riscv32",
    (40, 32): "arm",
}
#: Symbols that the linker defines.
_OF_THE_LINKER = {"_GLOBAL_OFFSET_TABLE_"}

_MACHO_MAGIC = b"\xcf\xfa\xed\xfe"
_MACHO_MACHINES = {0x01000007: "x86_64", 0x0100000C: "aarch64"}
_LC_SYMTAB = 2
_N_STAB, _N_TYPE, _N_EXT, _N_WEAK_REF = 0xE0, 0x0E, 0x01, 0x40


@dataclass(slots=True)
class ObjectNames:
    """A file's architecture, and the names it defines and needs (except weak references)."""

    architecture: str
    defined: set[str] = field(default_factory=set[str])
    needed: set[str] = field(default_factory=set[str])


def names_of(code: bytes) -> ObjectNames:
    """The names in the object file `code`; `UserError` if it is damaged or of another kind."""
    readers = {ELF64.magic: _elf_names, ELF32.magic: _elf_names, _MACHO_MAGIC: _macho_names}
    for magic, reader in readers.items():
        if code.startswith(magic):
            return _read_with(reader, code)
    raise _unreadable("it is neither an ELF nor a 64-bit Mach-O file")


def require_names(
    objects: Sequence[bytes], names: Iterable[str], wrong: Callable[[str], UserError]
) -> None:
    """Refuse objects that do not define all these names, or that define one twice."""
    defined = [name for code in objects for name in names_of(code).defined]
    for name in names:
        if name not in defined:
            raise wrong(f"its code does not define {name}")
    if len(defined) > len(set(defined)):
        twice = min(name for name in defined if defined.count(name) > 1)
        raise wrong(f"its code defines {twice} twice")


def _read_with(reader: Callable[[bytes], ObjectNames], code: bytes) -> ObjectNames:
    try:
        return reader(code)
    except (struct.error, IndexError, ValueError, UnicodeDecodeError):
        raise _unreadable("it is damaged or cut short") from None


def _elf_names(code: bytes) -> ObjectNames:
    file = read_elf(code)
    if file.kind != RELOCATABLE:
        raise _unreadable("it is an ELF file, but not a relocatable one")
    machine = (file.machine, 64 if file.layout is ELF64 else 32)
    names = ObjectNames(_ELF_MACHINES.get(machine, f"ELF machine {file.machine}"))
    # The first entry is empty by definition.
    for symbol in file.symbols[1:]:
        if symbol.binding == LOCAL:
            continue
        if symbol.section != UNDEFINED:
            names.defined.add(symbol.name)
        elif symbol.binding != WEAK:
            names.needed.add(symbol.name)
    names.needed -= _OF_THE_LINKER
    return names


def _macho_names(code: bytes) -> ObjectNames:
    (machine,) = struct.unpack_from("<I", code, 4)
    (count,) = struct.unpack_from("<I", code, 16)
    names = ObjectNames(_MACHO_MACHINES.get(machine, f"Mach-O machine {machine:#x}"))
    at = 32
    for _ in range(count):
        command, size = struct.unpack_from("<II", code, at)
        if command == _LC_SYMTAB:
            _add_macho_symbols(names, code, *struct.unpack_from("<III", code, at + 8))
        at += size
    return names


def _add_macho_symbols(names: ObjectNames, code: bytes, start: int, count: int, text: int) -> None:
    for at in range(start, start + 16 * count, 16):
        name, kind, _, note, _ = struct.unpack_from("<IBBHQ", code, at)
        if kind & _N_STAB or not kind & _N_EXT:
            continue
        # C names carry a leading underscore in Mach-O.
        spelled = _text_at(code, text + name).removeprefix("_")
        if kind & _N_TYPE:
            names.defined.add(spelled)
        elif not note & _N_WEAK_REF:
            names.needed.add(spelled)


def _text_at(code: bytes, start: int) -> str:
    return code[start : code.index(b"\0", start)].decode()


def _unreadable(reason: str) -> UserError:
    return UserError(
        "cannot read object code", reason=reason, remedy="compile the model again for this machine"
    )
