"""Conversations that are damaged on purpose, from a seed."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from pathlib import Path

from tests.rpc.hosts import data
from tilewright.rpc.wire.frames import Kind, packed
from tilewright.runtime import RunnableModel

#: Numbers that are at the border of something.
_NUMBERS = (0, 1, 0x7F, 0xFF, 0x7FFF, 0xFFFF, 1 << 20, (1 << 20) + 1, 1 << 31, (1 << 32) - 1)


def mutations(message: bytes, seed: int, count: int) -> Iterator[bytes]:
    """So many damaged forms of a message."""
    rng = random.Random(seed)
    for _ in range(count):
        damaged = bytearray(message)
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


# ---- messages -----------------------------------------------------------------------------------


def example_messages(model: RunnableModel, folder: Path) -> dict[str, bytes]:
    """A message of each kind, as clients send them."""
    model.save(folder / "m.twm")
    artifact, array = (folder / "m.twm").read_bytes(), data().tobytes()
    specs = {"arrays": [["float32", [3, 16]]], "inputs": {"listed": [{"array": 0}]}, "model": 1}
    calls: dict[str, tuple[dict[str, object], bytes]] = {
        "ping": ({"call": "ping"}, b""),
        "load": ({"call": "load", "threads": 1}, artifact),
        "run": ({"call": "run", **specs}, array),
        "time": ({"call": "time", **specs, "repeat": 1, "warmup": 0, "min_repeat_ms": 0}, array),
        "record": ({"call": "record", **specs, "runs": 1, "warmup": 0, "words": 0}, array),
        "unload": ({"call": "unload", "model": 1}, b""),
        "threads": ({"call": "threads", "model": 1, "count": 1, "affinity": None}, b""),
    }
    code = {"arrays": [["uint8", [4]], ["uint8", [0]]], "target": ["llvm", "x86_64-linux", ["sse"]]}
    params = [["x", "float32", ["n", ["mul", 4, "n"]], None, 64, True], ["k", "int32"]]
    kernel = {"name": "f", "messages": ["a"], "threads": 1, "params": params, "dims": ["n"]}
    calls["kernel"] = ({"call": "load_kernel", **code, **kernel}, b"\x7fELF")
    several = {"kernels": [1], "rounds": 1, "min_repeat_ms": 0, "warmup": 0}
    given = {"arrays": specs["arrays"], "arguments": [{"array": 0}]}
    calls["measure"] = ({"call": "measure", **several, **given}, array)
    calls["call"] = ({"call": "call_kernel", "kernel": 1, **given}, array)
    texts = {"inputs": {"named": {"x": {"strings": ["a", "b"], "shape": [2]}}}, "model": 1}
    calls["texts"] = ({"call": "run", **texts}, b"")
    return {
        name: packed(Kind.REQUEST, 7, header, len(body)) + body
        for name, (header, body) in calls.items()
    }
