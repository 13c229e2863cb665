"""ZIP archives that may be damaged, or made to do harm."""

from __future__ import annotations

import struct
import zipfile
import zlib
from typing import Final

from tilewright.support.errors import UserError

#: What the standard library raises for an archive that it cannot read.
UNREADABLE: Final = (
    OSError,
    EOFError,
    ValueError,
    RuntimeError,
    struct.error,
    zlib.error,
    zipfile.BadZipFile,
)
_PACKED: Final = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
#: Members that unpack to more bytes may not be so many times as long as they are packed.
_FREELY: Final = 1 << 26
_MOST_GROWTH: Final = 100


def read_member(archive: zipfile.ZipFile, name: str, most: int) -> bytes:
    """The bytes of a member, of which there may be at most so many."""
    info = archive.getinfo(name)
    if info.compress_type not in _PACKED:
        raise UserError(f"{name} is packed in a way that is not supported", remedy="use deflate")
    if info.file_size > min(most, max(_FREELY, info.compress_size * _MOST_GROWTH)):
        raise UserError(f"{name} has {info.file_size} bytes", reason="that cannot be")
    with archive.open(info) as file:
        return file.read(info.file_size)
