"""The wire format of protocol buffers: the fields of a message, without a schema."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
_FIXED: Final = {FIXED64: 8, FIXED32: 4}


class WireError(ValueError):
    """Bytes that are not a message."""


class Field(NamedTuple):
    """A field: its number, where it and its contents begin, and where both end."""

    number: int
    kind: int
    begin: int
    start: int
    end: int
    #: The value, if the field is a single number.
    value: int


def fields_of(data: memoryview, begin: int, end: int) -> Iterator[Field]:
    """The fields of a message; `WireError` where it is none."""
    while begin < end:
        tag, start = read_number(data, begin)
        kind, value = tag & 7, 0
        if kind == VARINT:
            value, stop = read_number(data, start)
        elif kind == BYTES:
            size, start = read_number(data, start)
            stop = start + size
        elif kind in _FIXED:
            stop = start + _FIXED[kind]
        else:
            raise WireError(f"a field has the wire type {kind}")
        if stop > end:
            raise WireError("a field ends after its message")
        yield Field(tag >> 3, kind, begin, start, stop, value)
        begin = stop


def read_number(data: memoryview, at: int) -> tuple[int, int]:
    """A number of 64 bits, and where it ends."""
    value = shift = 0
    end = len(data)
    while shift < 70:
        if at >= end:
            raise WireError("a number does not end")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, at
        shift += 7
    raise WireError("a number has more than 64 bits")
