"""The container of an artifact: a zip file with uncompressed, aligned members and checksums.

Members are not compressed, so that they can be used where they are mapped. The standard library
reads the directory; every offset in it is then checked against the file itself, and every member
against its checksum, before any is parsed.
"""

from __future__ import annotations

import mmap
import re
import struct
import zipfile
import zlib
from collections.abc import Iterable
from io import RawIOBase
from types import TracebackType
from typing import IO, BinaryIO, Final, cast

from tilewright.runtime.artifact.sign import SIGNATURE, Signer, Trust, digest_of
from tilewright.support.errors import UserError
from tilewright.support.files import AnyPath, replacing, text_path
from tilewright.support.memory import ALIGNMENT

PARAMS: Final = "params.bin"
MANIFEST: Final = "manifest.json"

_LOCAL = struct.Struct("<4s5H3I2H")
_LOCAL_MAGIC: Final = b"PK\x03\x04"
#: The type of an extra field used as padding; other readers skip it.
_FILLER: Final = 0x7774
_ZIP64_EXTRA: Final = 20
_NAME = re.compile(r"[A-Za-z0-9_.+-]+(/[A-Za-z0-9_.+-]+)*")
_SIZE_LIMITS: Final = {MANIFEST: 1 << 28}
_CHUNK: Final = 1 << 18


class ContainerWriter:
    """Writes members one after the other; the file only appears if the block succeeds."""

    def __init__(self, path: AnyPath, signer: Signer | None = None) -> None:
        self._replacing, self._signer = replacing(path), signer
        self._digests: dict[str, bytes] = {}

    def __enter__(self) -> ContainerWriter:
        self._file: BinaryIO = self._replacing.__enter__()
        self._zip = zipfile.ZipFile(self._file, "w", zipfile.ZIP_STORED)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        if value is None:
            try:
                if self._signer is not None:
                    signature = self._signer.signature(self._digests)
                    self._write(SIGNATURE, [signature], len(signature))
                self._zip.close()
            except OSError as error:
                kind, value, trace = type(error), error, error.__traceback__
        else:
            # Closing would write the directory, which fails again on a full disk.
            self._zip.fp = None
        return self._replacing.__exit__(kind, value, trace)

    def add(self, name: str, parts: Iterable[bytes | memoryview], size: int) -> None:
        """Add a member of `size` bytes, whose data begins at a multiple of 64 bytes."""
        if self._signer is not None:
            parts = list(parts)
            self._digests[name] = digest_of(parts)
        self._write(name, parts, size)

    def _write(self, name: str, parts: Iterable[bytes | memoryview], size: int) -> None:
        info = zipfile.ZipInfo(name)
        info.external_attr = 0o644 << 16
        # From 2 GiB on, the local header has a ZIP64 field with the size.
        is_large = size >= zipfile.ZIP64_LIMIT
        begin = self._file.tell() + _LOCAL.size + len(name.encode()) + _ZIP64_EXTRA * is_large
        filling = -(begin + 4) % ALIGNMENT
        info.extra = struct.pack("<HH", _FILLER, filling) + bytes(filling)
        with self._zip.open(info, "w", force_zip64=is_large) as member:
            for part in parts:
                member.write(part)


class Container:
    """A container open for reading, whose members are in mapped memory."""

    def __init__(self, path: AnyPath, trust: Trust | None = None) -> None:
        self.path = text_path(path)
        with _opened(self.path) as file:
            self._map = _mapped(self.path, file)
            self._members = self._read_directory(file)
            # Parameters are checked by their readers, array by array.
            self._check(file, [n for n in self._members if n != PARAMS])
        if trust is not None:
            self._require_signature(trust)

    def refusal(self, reason: str, remedy: str = "save the model again") -> UserError:
        """The error for a file that cannot be used."""
        return _refusal(self.path, reason, remedy)

    @property
    def names(self) -> list[str]:
        return list(self._members)

    def view(self, name: str) -> memoryview:
        """The member `name` in mapped memory."""
        if name not in self._members:
            raise self.refusal(f"it has no {name}")
        begin, size, _ = self._members[name]
        return memoryview(self._map)[begin : begin + size]

    def bytes(self, name: str) -> bytes:
        """A copy of the member `name`."""
        return bytes(self.view(name))

    def checked(self, name: str) -> memoryview:
        """The member `name`, checked against its checksum."""
        if zlib.crc32(self.view(name)) != self._members[name][2]:
            raise self._damaged(name)
        return self.view(name)

    # ---- checks ---------------------------------------------------------------------------------

    def _read_directory(self, source: RawIOBase) -> dict[str, tuple[int, int, int]]:
        """The offset, size and checksum of each member."""
        try:
            with zipfile.ZipFile(cast(IO[bytes], source)) as file:
                infos = file.infolist()
        except OSError as error:
            raise self.refusal(error.strerror or str(error)) from None
        except (zipfile.BadZipFile, struct.error, ValueError, NotImplementedError) as error:
            raise self.refusal(f"it is no artifact, or damaged: {error}") from None
        members: dict[str, tuple[int, int, int]] = {}
        for info in infos:
            name = info.filename
            if not _NAME.fullmatch(name) or ".." in name or name in members:
                raise self.refusal(f"the name {name!r} in it is not allowed")
            members[name] = (self._begin(info), info.file_size, info.CRC)
        return members

    def _begin(self, info: zipfile.ZipInfo) -> int:
        """The offset of a member's data, from its local header, which must match the directory."""
        name, at = info.filename, info.header_offset
        if info.compress_type != zipfile.ZIP_STORED or info.file_size != info.compress_size:
            raise self.refusal(f"{name} in it is compressed")
        if info.flag_bits & ~0x800:
            raise self.refusal(f"{name} in it is encrypted or streamed")
        if info.file_size > _SIZE_LIMITS.get(name, info.file_size):
            raise self.refusal(f"{name} in it has {info.file_size} bytes")
        try:
            magic, *_, name_size, extra_size = _LOCAL.unpack_from(self._map, at)
        except struct.error:
            raise self._damaged(name) from None
        begin = at + _LOCAL.size + name_size + extra_size
        own_name = self._map[at + _LOCAL.size : at + _LOCAL.size + name_size]
        if magic != _LOCAL_MAGIC or own_name != name.encode():
            raise self._damaged(name)
        if begin + info.file_size > len(self._map):
            raise self.refusal(f"it is cut short in {name}")
        if begin % ALIGNMENT:
            raise self.refusal(f"{name} in it is not aligned", "do not pack artifacts anew")
        return begin

    def _check(self, file: RawIOBase, names: Iterable[str]) -> None:
        # Read, not mapped: members that a model never uses then take no memory.
        chunk = memoryview(bytearray(_CHUNK))
        for name in names:
            begin, size, expected = self._members[name]
            file.seek(begin)
            if _checksum(file, size, chunk) != expected:
                raise self._damaged(name)

    def _require_signature(self, trust: Trust) -> None:
        if SIGNATURE not in self._members:
            raise self.refusal("it is not signed", "sign it: model.save(path, key=…)")
        digests = {name: digest_of([self.view(name)]) for name in self._members}
        if not trust.covers(digests, self.bytes(SIGNATURE)):
            raise self.refusal(
                "no key that is trusted signed it as it is", "load files of those whom you trust"
            )

    def _damaged(self, name: str) -> UserError:
        return self.refusal(f"{name} in it is damaged")


def _checksum(file: RawIOBase, size: int, chunk: memoryview) -> int:
    """The checksum of the next `size` bytes."""
    checksum = 0
    while size > 0:
        count = file.readinto(chunk[: min(size, len(chunk))])
        if not count:
            break
        checksum, size = zlib.crc32(chunk[:count], checksum), size - count
    return checksum


def _opened(path: str) -> RawIOBase:
    try:
        return open(path, "rb", buffering=0)
    except IsADirectoryError:
        raise _refusal(
            path, "it is a folder", "name an artifact, a file that ends in .twm"
        ) from None
    except FileNotFoundError:
        raise _refusal(path, "there is no such file") from None
    except OSError as error:
        raise _refusal(path, error.strerror or str(error)) from None
    except ValueError as error:
        raise _refusal(path.replace("\0", "\\0"), str(error)) from None


def _mapped(path: str, file: RawIOBase) -> mmap.mmap:
    try:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        raise _refusal(path, error.strerror or str(error)) from None
    except ValueError:
        raise _refusal(path, "it is empty") from None


def _refusal(path: str, reason: str, remedy: str = "") -> UserError:
    return UserError(f"cannot load {path}", reason=reason, remedy=remedy)
