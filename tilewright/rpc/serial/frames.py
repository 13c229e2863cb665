"""Messages on a serial line: a header, a body and a checksum, delimited as in SLIP (RFC 1055).

    kind u8 | 0 u8 | number u16 | session u32 | bytes of the body u32 | body | CRC-32 u32

The checksum covers all bytes before it; all numbers are little-endian. Delimiters only occur
between messages, so that a receiver finds the next message after any garbage; damaged ones are
dropped.
"""

from __future__ import annotations

import re
import struct
import zlib
from enum import IntEnum
from typing import Final, NamedTuple

_HEAD: Final = struct.Struct("<BBHII")
_CHECK: Final = struct.Struct("<I")
_END, _ESCAPE = b"\xc0", b"\xdb"
_ESCAPED_END, _ESCAPED_ESCAPE = b"\xdb\xdc", b"\xdb\xdd"
_WRONG_ESCAPE: Final = re.compile(rb"\xdb(?![\xdc\xdd])")
#: Most bytes of a body that a host accepts.
MOST_BYTES: Final = 1 << 16


class Kind(IntEnum):
    """The kind of a message; an answer has the kind of its request plus `ANSWER`."""

    HELLO = 1
    WRITE = 2
    READ = 3
    CLEAR = 4
    CALL = 5
    COUNTER = 6
    #: The call has begun, and its answer may take long.
    AT_WORK = 0x40
    REFUSAL = 0x7F
    ANSWER = 0x80


class Frame(NamedTuple):
    """A message; an answer has the number of its request."""

    kind: int
    number: int
    session: int
    body: bytes


def framed(frame: Frame) -> bytes:
    """A message as bytes on the line."""
    data = _HEAD.pack(frame.kind, 0, frame.number, frame.session, len(frame.body)) + frame.body
    data += _CHECK.pack(zlib.crc32(data))
    escaped = data.replace(_ESCAPE, _ESCAPED_ESCAPE).replace(_END, _ESCAPED_END)
    return _END + escaped + _END


class FrameReader:
    """Finds messages in received bytes, in pieces of any size."""

    def __init__(self) -> None:
        self._begun = bytearray()

    def read(self, data: bytes) -> list[Frame]:
        """The messages completed by these bytes."""
        *whole, rest = (bytes(self._begun) + data).split(_END)
        # Limit the memory for a message that never ends.
        self._begun = bytearray(rest[: 2 * MOST_BYTES])
        return [frame for part in whole if (frame := _frame(part)) is not None]


def _frame(escaped: bytes) -> Frame | None:
    """The message between two delimiters; None if it is damaged."""
    if _WRONG_ESCAPE.search(escaped):
        return None
    data = escaped.replace(_ESCAPED_END, _END).replace(_ESCAPED_ESCAPE, _ESCAPE)
    if len(data) < _HEAD.size + _CHECK.size:
        return None
    kind, zero, number, session, length = _HEAD.unpack_from(data)
    inside = data[: -_CHECK.size]
    if zero or length != len(inside) - _HEAD.size or length > MOST_BYTES:
        return None
    if zlib.crc32(inside) != _CHECK.unpack(data[-_CHECK.size :])[0]:
        return None
    return Frame(kind, number, session, inside[_HEAD.size :])
