"""LLVM's target triples: architecture, vendor, system, environment."""

from __future__ import annotations

import re
from typing import Literal

from tilewright.support.errors import UserError, nearest
from tilewright.target.features import ARCHITECTURES

#: The supported operating systems.
System = Literal["linux", "android", "darwin", "windows"]

_SPELLINGS = {
    "amd64": "x86_64",
    "arm64": "aarch64",
    "nvptx64": "nvptx64",
    **{arch: arch for arch in ARCHITECTURES},
}
#: 32-bit Arm, whose triples name the version of the instruction set: armv7, thumbv7em, ….
_ARM = re.compile(r"(arm|thumb)v\d[\w.]*|thumb")
#: The names of big-endian architectures.
_BIG_ENDIAN = re.compile(
    r"armeb\w*|armebv\w*|thumbeb\w*|arm(64)?_be|aarch64_be|riscv(32|64)be|mips(64|isa32r6|isa64r6)?"
    r"|powerpc(64)?|ppc(64|32)?|s390x|systemz|sparc(64|v9)?|m68k"
)
_SYSTEMS = ("linux", "darwin", "macos", "ios", "windows", "freebsd", "none", "wasi")
_DEFAULTS = {
    "x86_64": "x86_64-unknown-linux-gnu",
    "aarch64": "aarch64-unknown-linux-gnu",
    "riscv64": "riscv64-unknown-linux-gnu",
    "arm": "armv7-unknown-linux-gnueabihf",
    "riscv32": "riscv32-unknown-none-elf",
    "wasm32": "wasm32-unknown-unknown",
}


def arch_of(triple: str) -> str:
    """The architecture in a triple."""
    spelling = triple.partition("-")[0]
    if _BIG_ENDIAN.fullmatch(spelling):
        raise UserError(
            f"target triple {triple!r}",
            reason=f"{spelling} is big-endian, and code for it would read every number wrongly",
            remedy="compile for a little-endian machine",
        )
    if _ARM.fullmatch(spelling):
        return "arm"
    if spelling not in _SPELLINGS:
        raise UserError(
            f"target triple {triple!r}",
            reason=f"no code generator for {spelling!r}",
            remedy=nearest(spelling, ARCHITECTURES),
        )
    return _SPELLINGS[spelling]


def default_triple(arch: str, host: str) -> str:
    """The default triple of an architecture: the host's own if it is known and matches."""
    return host if host and arch_of(host) == arch else _DEFAULTS[arch]


def system_of(triple: str) -> System | None:
    """The operating system of a triple, if it is supported."""
    if "android" in triple:
        return "android"
    if "macos" in triple:
        return "darwin"
    known: tuple[System, ...] = ("linux", "darwin", "windows")
    return next((system for system in known if system in triple), None)


def normalize_triple(triple: str) -> str:
    """The triple with an explicit vendor, which `x86_64-linux-gnu` lacks."""
    parts = triple.split("-")
    if len(parts) in (2, 3) and parts[1].startswith(_SYSTEMS):
        parts.insert(1, "unknown")
    return "-".join(parts)
