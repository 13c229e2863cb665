"""Sorted tables of keys and values in blocks, as LevelDB and TensorFlow's checkpoints write them.

A block has entries, whose keys state how much of the one before they begin with; then the positions
of keys in full. Behind each block are one byte for its compression and a checksum. The last 48
bytes of the file give the position of the index, whose values are the positions of the blocks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tilewright.frontends.common.wire import read_number
from tilewright.support.errors import UserError

_MAGIC: Final = 0xDB4775248B80FB57
_FOOTER: Final = 48
_TRAILER: Final = 5
_MOST_BYTES: Final = 1 << 30


def read_table(data: memoryview, name: str) -> dict[bytes, memoryview]:
    """All keys with their values."""
    if len(data) < _FOOTER or int.from_bytes(data[-8:], "little") != _MAGIC:
        raise UserError(f"{name} is no index of a checkpoint", reason="it does not end like one")
    _, at = _handle(data[-_FOOTER:], 0)
    (start, size), _ = _handle(data[-_FOOTER:], at)
    found: dict[bytes, memoryview] = {}
    read = 0
    for _, place in _entries(_block(data, start, size, name), name):
        (begin, length), _ = _handle(place, 0)
        read += length
        if read > _MOST_BYTES:
            raise UserError(f"{name} names its blocks more than once")
        found.update(_entries(_block(data, begin, length, name), name))
    return found


def _handle(data: memoryview, at: int) -> tuple[tuple[int, int], int]:
    """The start and the length of a block."""
    start, at = read_number(data, at)
    size, at = read_number(data, at)
    return (start, size), at


def _block(data: memoryview, start: int, size: int, name: str) -> memoryview:
    end = start + size
    if end + _TRAILER > len(data):
        raise UserError(f"{name} is damaged", reason="a block ends after the file")
    kind = data[end]
    if kind == 0:
        return data[start:end]
    if kind == 1:
        return memoryview(decompressed(data[start:end], name))
    raise UserError(f"{name} is damaged", reason=f"a block has the compression {kind}")


def _entries(block: memoryview, name: str) -> Iterator[tuple[bytes, memoryview]]:
    count = int.from_bytes(block[-4:], "little") if len(block) >= 4 else -1
    end = len(block) - 4 * (count + 1)
    if count < 0 or end < 0:
        raise UserError(f"{name} is damaged", reason="a block has no end")
    at, key = 0, b""
    while at < end:
        shared, at = read_number(block, at)
        own, at = read_number(block, at)
        size, at = read_number(block, at)
        if shared > len(key) or at + own + size > end:
            raise UserError(f"{name} is damaged", reason="an entry ends after its block")
        key = key[:shared] + bytes(block[at : at + own])
        at += own
        yield key, block[at : at + size]
        at += size


def decompressed(data: memoryview, name: str) -> bytes:
    """Snappy: a length, then literals and copies of preceding bytes."""
    wanted, at = read_number(data, 0)
    if wanted > _MOST_BYTES or wanted > 64 * len(data):
        raise UserError(f"{name} is damaged", reason=f"a block says that it has {wanted} bytes")
    made = bytearray()
    while at < len(data) and len(made) <= wanted:
        at = _element(data, at, made, name)
    if len(made) != wanted:
        raise UserError(f"{name} is damaged", reason="a compressed block has another length")
    return bytes(made)


def _element(data: memoryview, at: int, made: bytearray, name: str) -> int:
    tag = data[at]
    at += 1
    kind = tag & 3
    if kind == 0:
        size = tag >> 2
        if size >= 60:
            width = size - 59
            size = int.from_bytes(data[at : at + width], "little")
            at += width
        made += data[at : at + size + 1]
        return at + size + 1
    if kind == 1:
        size, width = (tag >> 2 & 7) + 4, 1
        offset = (tag >> 5) << 8 | int.from_bytes(data[at : at + 1], "little")
    else:
        size, width = (tag >> 2) + 1, 2 if kind == 2 else 4
        offset = int.from_bytes(data[at : at + width], "little")
    if not 0 < offset <= len(made):
        raise UserError(f"{name} is damaged", reason="a copy begins before its block")
    for _ in range(size):
        made.append(made[-offset])
    return at + width
