"""Reads tables of a flatbuffer by the numbers of their fields; every offset is checked.

A flatbuffer consists of tables. A table begins with the distance to its vtable, which has the
position of each field in the table; a field that is omitted has its default. Anything larger than a
number (strings, vectors, other tables) is a distance from the field to its position.
"""

from __future__ import annotations

import struct
from typing import Any, Final

import numpy as np

from tilewright.support.errors import UserError

Bytes = np.ndarray[Any, np.dtype[np.uint8]]

_U16, _I32, _U32 = struct.Struct("<H"), struct.Struct("<i"), struct.Struct("<I")
#: Tables and strings may be shared; a small file whose parts are used over and over is refused.
#: Reads are counted in bytes, `_TABLE` for a table, and bounded by the size of the file.
_TABLE: Final = 24
_MOST_READ_PER_BYTE: Final = 2
_MOST_READ: Final = 1 << 20


class DamagedError(UserError):
    """The parts of a file do not fit together."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            "the TFLite model is damaged", reason=reason, remedy="check that the file is complete"
        )


class File:
    """The bytes of a flatbuffer, and how much of them has been read."""

    def __init__(self, data: Bytes) -> None:
        self.data = data
        self.view: Any = data.data
        self.size = len(data)
        self._left = _MOST_READ + _MOST_READ_PER_BYTE * self.size

    def root(self) -> Table:
        """The table that holds all others."""
        return Table(self, self.unsigned(0))

    def spend(self, amount: int) -> None:
        """Count bytes that are read."""
        self._left -= amount
        if self._left < 0:
            raise DamagedError("its parts are used more often than a file of this size can mean")

    def require(self, start: int, size: int) -> None:
        """Refuse bytes that are not in the file."""
        if start < 0 or size < 0 or start + size > self.size:
            raise DamagedError(f"it refers to bytes {start} to {start + size} of {self.size}")

    def unsigned(self, at: int) -> int:
        self.require(at, 4)
        return _U32.unpack_from(self.view, at)[0]

    def bytes(self, start: int, size: int) -> Bytes:
        """A part of the file, which is not copied."""
        self.require(start, size)
        return self.data[start : start + size]


class Table:
    """One table: fields are numbered from 0 in the order in which the schema declares them."""

    __slots__ = ("_at", "_file", "_offsets", "_size")

    def __init__(self, file: File, at: int) -> None:
        file.require(at, 4)
        vtable = at - _I32.unpack_from(file.view, at)[0]
        file.require(vtable, 4)
        length, self._size = struct.unpack_from("<HH", file.view, vtable)
        if length < 4 or length % 2:
            raise DamagedError(f"a table has {length} bytes of field offsets")
        file.require(vtable, length)
        file.require(at, self._size)
        file.spend(_TABLE + length // 2)
        self._file, self._at = file, at
        self._offsets = struct.unpack_from(f"<{length // 2 - 2}H", file.view, vtable + 4)

    def number(self, field: int, form: str, default: Any = 0) -> Any:
        """A number; `form` is its type as the `struct` module writes it."""
        at = self._place(field, struct.calcsize(form))
        return default if at is None else struct.unpack_from(f"<{form}", self._file.view, at)[0]

    def has(self, field: int) -> bool:
        """Whether a field exists."""
        return field < len(self._offsets) and self._offsets[field] != 0

    def text(self, field: int) -> str:
        """A string; "" where it is left out."""
        raw = self.array(field, np.dtype(np.uint8))
        self._file.spend(len(raw))
        return raw.tobytes().decode("utf-8", "replace")

    def table(self, field: int) -> Table | None:
        """Another table."""
        at = self._target(field)
        return None if at is None else Table(self._file, at)

    def tables(self, field: int) -> list[Table]:
        """A vector of tables."""
        found = self._vector(field, 4)
        if found is None:
            return []
        start, count = found
        return [
            Table(self._file, at + self._file.unsigned(at))
            for at in range(start, start + 4 * count, 4)
        ]

    def array(self, field: int, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
        """A vector of numbers, in the memory of the file where it is aligned there."""
        found = self._vector(field, dtype.itemsize)
        if found is None:
            return np.empty(0, dtype)
        start, count = found
        return self._file.bytes(start, count * dtype.itemsize).view(dtype)

    def integers(self, field: int, dtype: str = "<i4") -> list[int]:
        """A short vector of integers."""
        found = self.array(field, np.dtype(dtype))
        self._file.spend(len(found))
        return found.tolist()

    def _place(self, field: int, size: int) -> int | None:
        if not self.has(field):
            return None
        offset = self._offsets[field]
        if offset + size > self._size:
            raise DamagedError("a field lies outside of its table")
        return self._at + offset

    def _target(self, field: int) -> int | None:
        at = self._place(field, 4)
        return None if at is None else at + self._file.unsigned(at)

    def _vector(self, field: int, item: int) -> tuple[int, int] | None:
        """Where the items of a vector begin, and how many there are."""
        at = self._target(field)
        if at is None:
            return None
        count = self._file.unsigned(at)
        self._file.require(at + 4, count * item)
        return at + 4, count
