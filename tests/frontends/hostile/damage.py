"""Ways to damage bytes, texts and trees of values; what is done follows from a seed."""

from __future__ import annotations

import copy
import random
import re
import struct
from typing import Any, Final

_NUMBERS: Final = (
    "0 1 -1 2 3 7 64 1000 65536 2147483647 -2147483648 9223372036854775807 1e30 nan".split()
)
_NUMBER: Final = re.compile(rb"-?\d+(\.\d+)?")
_WORD: Final = re.compile(rb"[A-Za-z_]\w*")
_WORDS: Final = (0, 1, 2, 3, 7, 63, 127, 128, 255, 1 << 15, 1 << 31, (1 << 32) - 1, 10**6)
_VALUES: Final = (0, 1, -1, 2, 7, 1 << 31, 10**6, 10**12, -(1 << 63), 0.5, None, "x", [], {}, True)


def damaged(data: bytes, rng: random.Random) -> bytes:
    """Bytes with one thing wrong: cut, flipped, overwritten, removed or repeated."""
    b = bytearray(data)
    at = rng.randrange(len(b))
    kind = rng.randrange(5)
    if kind == 0:
        del b[at:]
    elif kind == 1:
        b[at] ^= 1 << rng.randrange(8)
    elif kind == 2:
        for _ in range(rng.randrange(1, 6)):
            b[rng.randrange(len(b))] = rng.randrange(256)
    elif kind == 3:
        del b[at : at + rng.randrange(1, 20)]
    else:
        start = rng.randrange(len(b))
        b[at:at] = b[start : start + rng.randrange(1, 60)]
    return bytes(b)


def with_other_word(data: bytes, rng: random.Random) -> bytes:
    """Bytes in which one aligned number of 32 bits is another."""
    b = bytearray(data)
    struct.pack_into("<I", b, rng.randrange(len(b) // 4) * 4, rng.choice(_WORDS))
    return bytes(b)


def bent_text(text: bytes, rng: random.Random) -> bytes:
    """A text that still reads, with a number, a word or a line changed."""
    kind = rng.randrange(4)
    if kind == 0:
        lines = text.split(b"\n")
        at, other = rng.randrange(len(lines)), rng.randrange(len(lines))
        lines[at : at + rng.randrange(2)] = [lines[other]] if rng.random() < 0.5 else []
        return b"\n".join(lines)
    pattern = _WORD if kind == 1 else _NUMBER
    found = list(pattern.finditer(text))
    if not found:
        return damaged(text, rng)
    match = rng.choice(found)
    new = rng.choice(found)[0] if kind == 1 else rng.choice(_NUMBERS).encode()
    return text[: match.start()] + new + text[match.end() :]


def bend_tree(tree: Any, rng: random.Random) -> None:
    """Change or remove one entry of nested dictionaries and lists."""
    places: list[tuple[Any, Any]] = []
    pending = [tree]
    while pending:
        current = pending.pop()
        keys = list(current) if isinstance(current, dict) else range(len(current))
        places += [(current, k) for k in keys]
        pending += [current[k] for k in keys if isinstance(current[k], dict | list)]
    if not places:
        return
    target, key = rng.choice(places)
    if rng.random() < 0.2:
        del target[key]
    else:
        other, name = rng.choice(places)
        target[key] = copy.deepcopy(rng.choice([*_VALUES, other[name]]))


def bend_tree_a_little(tree: Any, rng: random.Random) -> None:
    for _ in range(rng.choice([1, 1, 2, 3])):
        bend_tree(tree, rng)
