"""The object files that a library is made of.

Of ELF files one is made. Those of macOS and Windows stay apart, and whatever is not for users gets
a name that begins with the library's own, so that two of them go into one program.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from types import ModuleType
from typing import NamedTuple

from tilewright.codegen.link import coff, macho
from tilewright.codegen.link.data import DataSymbol
from tilewright.codegen.link.merge import merge


class Member(NamedTuple):
    """An object file, and what it defines for others."""

    name: str
    code: bytes
    symbols: list[str]


def members(
    objects: Sequence[bytes], data: DataSymbol, exported: Collection[str], prefix: str
) -> list[Member]:
    """The files of a library that offers `exported`."""
    format_ = _format_of(objects[0])
    if format_ is None:
        return [Member(f"{prefix}.o", merge(objects, data, exported), sorted(exported))]
    files = [*objects, format_.data_file(data, objects[0])]
    seen = {format_.LEAD + name for name in exported}
    inner = {name for code in files for name in format_.defined_names(code)} - seen

    def rename(name: str) -> str:
        return f"{format_.LEAD}{prefix}.{name[len(format_.LEAD) :]}" if name in inner else name

    made = [format_.renamed(code, rename) for code in files]
    return [Member(f"{k}.o", code, format_.defined_names(code)) for k, code in enumerate(made)]


def _format_of(code: bytes) -> ModuleType | None:
    """What reads this kind of file; none where files can be merged."""
    if macho.is_macho(code):
        return macho
    return coff if coff.is_coff(code) else None
