"""Protocol buffers on the wire: the fields of a message, without knowing what they mean."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
_FIXED: Final = {FIXED64: 8, FIXED32: 4}


class Field(NamedTuple):
    """A field: where it begins, where its contents do, and where both end."""

    number: int
    kind: int
    begin: int
    start: int
    end: int


def fields_of(data: memoryview, begin: int, end: int) -> Iterator[Field]:
    """The fields of a message; `ValueError` where it is none."""
    while begin < end:
        tag, start = read_number(data, begin)
        kind = tag & 7
        if kind == VARINT:
            _, stop = read_number(data, start)
        elif kind == BYTES:
            size, start = read_number(data, start)
            stop = start + size
        else:
            stop = start + _FIXED.get(kind, end)
        if stop > end:
            raise ValueError("a field ends after its message")
        yield Field(tag >> 3, kind, begin, start, stop)
        begin = stop


def read_number(data: memoryview, at: int) -> tuple[int, int]:
    """A number, and where it ends."""
    value = shift = 0
    while shift < 70:
        byte = data[at]
        at, value, shift = at + 1, value | (byte & 0x7F) << shift, shift + 7
        if byte < 0x80:
            return value, at
    raise ValueError("a number of more than 64 bits")
