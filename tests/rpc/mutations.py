"""Conversations that are damaged on purpose, from a seed."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator

#: Numbers that are at the border of something.
_NUMBERS = (0, 1, 0x7F, 0xFF, 0x7FFF, 0xFFFF, 1 << 20, (1 << 20) + 1, 1 << 31, (1 << 32) - 1)


def mutations(data: bytes, seed: int, count: int) -> Iterator[bytes]:
    """So many damaged forms of a message."""
    rng = random.Random(seed)
    for _ in range(count):
        damaged = bytearray(data)
        for _ in range(rng.choice((1, 1, 1, 2, 5))):
            damaged = rng.choice(_STEPS)(damaged, rng)
        yield bytes(damaged)


def _flip(data: bytearray, rng: random.Random) -> bytearray:
    if data:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return data


def _cut(data: bytearray, rng: random.Random) -> bytearray:
    return data[: rng.randrange(len(data) + 1)]


def _insert(data: bytearray, rng: random.Random) -> bytearray:
    at = rng.randrange(len(data) + 1)
    return data[:at] + rng.randbytes(rng.randrange(1, 40)) + data[at:]


def _number(data: bytearray, rng: random.Random) -> bytearray:
    """Another length, or what may be taken for one."""
    if len(data) >= 4:
        at = rng.randrange(min(len(data) - 3, 24))
        data[at : at + 4] = struct.pack(">I", rng.choice(_NUMBERS))
    return data


def _repeat(data: bytearray, rng: random.Random) -> bytearray:
    at = rng.randrange(len(data) + 1)
    return data + data[at:]


def _digit(data: bytearray, rng: random.Random) -> bytearray:
    """Another digit in the JSON text."""
    digits = [k for k, c in enumerate(data) if chr(c).isdigit()]
    if digits:
        data[rng.choice(digits)] = rng.choice(b'0123456789-.e"[]{}')
    return data


_STEPS = (_flip, _cut, _insert, _number, _repeat, _digit)
