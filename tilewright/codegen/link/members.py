"""The object files of a library.

ELF files are merged into one. Those of macOS and Windows stay separate, and symbols that are not
exported get the library's prefix, so that a program can link two libraries.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from types import ModuleType
from typing import NamedTuple

from tilewright.codegen.link import coff, macho
from tilewright.codegen.link.data import DataSymbol
from tilewright.codegen.link.merge import merge


class Member(NamedTuple):
    """An object file, and the external symbols it defines."""

    name: str
    code: bytes
    symbols: list[str]


def members(
    objects: Sequence[bytes], data: DataSymbol, exported: Collection[str], prefix: str
) -> list[Member]:
    """The object files of a library that exports `exported`."""
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
    """The module for this file format; None for ELF, whose files can be merged."""
    if macho.is_macho(code):
        return macho
    return coff if coff.is_coff(code) else None
