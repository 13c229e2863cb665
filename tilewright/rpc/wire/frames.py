"""Messages as bytes: a prefix of 20 bytes, a JSON object, and the raw bytes of arrays.

    kind u8 | 0 u8 | 0 u16 | number u32 | bytes of the object u32 | bytes of the body u64

All numbers are big-endian. `docs/rpc_protocol.md` is the whole protocol.
"""

from __future__ import annotations

import json
import struct
from enum import IntEnum
from typing import Any, Final, NamedTuple

from tilewright.rpc.wire.errors import ProtocolError
from tilewright.rpc.wire.limits import HEADER_BYTES
from tilewright.support.errors import UserError

_PREFIX: Final = struct.Struct(">BBHIIQ")
PREFIX_BYTES: Final = _PREFIX.size


class Kind(IntEnum):
    """The kind of a message."""

    REQUEST = 1
    REPLY = 2
    ERROR = 3
    #: A sign of life from a peer that works on a request.
    ALIVE = 4


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


# Shared: constructing one takes longer than coding most texts.
_ENCODER: Final = json.JSONEncoder(separators=(",", ":"), allow_nan=False)
_DECODER: Final = json.JSONDecoder(parse_constant=_no_constant)
_KINDS: Final = {int(kind): kind for kind in Kind}


class Prefix(NamedTuple):
    """The fixed-size start of a message."""

    kind: Kind
    #: A reply has the number of its request.
    number: int
    header_bytes: int
    body_bytes: int


def packed(kind: Kind, number: int, header: dict[str, Any], body_bytes: int = 0) -> bytes:
    """A message without its body."""
    text = _ENCODER.encode(header).encode()
    if len(text) > HEADER_BYTES:
        reason = f"what describes it takes {len(text)} bytes, and {HEADER_BYTES} are allowed"
        raise UserError("a message is too large", reason=reason, remedy="pass arrays, not lists")
    return _PREFIX.pack(kind, 0, 0, number, len(text), body_bytes) + text


def read_prefix(data: bytes | bytearray, body_limit: int) -> Prefix:
    """A prefix, checked before memory is allocated for what follows."""
    kind, zero, zeros, number, header_bytes, body_bytes = _PREFIX.unpack(data)
    if kind not in _KINDS or zero or zeros:
        raise _wrong(f"its first bytes are {data[:4].hex()}")
    if header_bytes > HEADER_BYTES:
        raise _wrong(f"its header has {header_bytes} bytes, and {HEADER_BYTES} are allowed")
    if body_bytes > body_limit:
        raise _wrong(f"its body has {body_bytes} bytes, and {body_limit} are allowed")
    return Prefix(_KINDS[kind], number, header_bytes, body_bytes)


def read_header(data: bytes | bytearray) -> dict[str, Any]:
    """The JSON object of a message."""
    try:
        value: Any = _DECODER.decode(data.decode())
    except (ValueError, RecursionError):
        raise _wrong("its header is not JSON") from None
    if not isinstance(value, dict):
        raise _wrong("its header is no object")
    return value  # pyright: ignore[reportUnknownVariableType]


def _wrong(reason: str) -> ProtocolError:
    return ProtocolError("a message is damaged", reason=reason)
