"""Ways to damage bytes, texts and trees of values; what is done follows from a seed."""

from __future__ import annotations

import copy
import random
import re
import struct
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

_NUMBERS: Final = (
    "0 1 -1 2 3 7 64 1000 65536 2147483647 -2147483648 9223372036854775807 1e30 nan".split()
)
_NUMBER: Final = re.compile(rb"-?\d+(\.\d+)?")
_WORD: Final = re.compile(rb"[A-Za-z_]\w*")
_WORDS: Final = (0, 1, 2, 3, 7, 63, 127, 128, 255, 1 << 15, 1 << 31, (1 << 32) - 1, 10**6)
_INTS: Final = (0, 1, -1, 2, 3, 7, 64, 255, 1 << 31, -(1 << 31), 10**6, 10**12, -(1 << 63))
_FLOATS: Final = (0.0, -1.0, 0.5, 1e-40, 3e38, float("nan"), float("inf"))
_VALUES: Final = (*_INTS, 0.5, None, "x", [], {}, True)
_DTYPES: Final = ("int8", "uint8", "int32", "int64", "float16", "float32", "float64", "bool")

#: What may stand by a key of a tree: names of operators, for one.
Words = Mapping[Any, Sequence[Any]]


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


# ---- trees --------------------------------------------------------------------------------------


def bent_tree(tree: Any, rng: random.Random, words: Words | None = None) -> Any:
    """Nested dictionaries and lists with a few things changed."""
    made = copy.deepcopy(tree)
    for _ in range(rng.choice([1, 1, 2, 3])):
        _bend(made, rng, words or {})
    return made


def _bend(tree: Any, rng: random.Random, words: Words) -> None:
    """Remove, repeat, exchange or replace one entry."""
    places = _places(tree)
    if not places:
        return
    target, key = rng.choice(places)
    kind = rng.randrange(8)
    if kind == 0:
        del target[key]
    elif kind == 1 and isinstance(target, list):
        target.insert(rng.randrange(len(target) + 1), copy.deepcopy(target[key]))
    elif kind == 2:
        other = rng.choice(list(_keys(target)))
        target[key], target[other] = target[other], target[key]
    elif kind in (3, 4):
        _take_over(places, rng, words)
    elif kind == 5:
        other, name = rng.choice(places)
        target[key] = copy.deepcopy(rng.choice([*_VALUES, other[name]]))
    else:
        target[key] = _odd(target[key], rng)


def _keys(tree: Any) -> Any:
    return list(tree) if isinstance(tree, dict) else range(len(tree))


def _places(tree: Any) -> list[tuple[Any, Any]]:
    """Every entry of the tree: where it stands, and by which key."""
    places: list[tuple[Any, Any]] = []
    pending = [tree]
    while pending:
        current = pending.pop()
        keys = _keys(current)
        places += [(current, k) for k in keys]
        pending += [current[k] for k in keys if isinstance(current[k], dict | list)]
    return places


def _take_over(places: list[tuple[Any, Any]], rng: random.Random, words: Words) -> None:
    """Give an entry what another by the same key has, or a word that may stand there."""
    worded = [p for p in places if isinstance(p[0], dict) and p[1] in words]
    if worded and rng.random() < 0.5:
        target, key = rng.choice(worded)
        target[key] = rng.choice(words[key])
        return
    target, key = rng.choice([p for p in places if isinstance(p[0], dict)] or places)
    other, name = rng.choice([p for p in places if p[1] == key])
    target[key] = copy.deepcopy(other[name])


def _odd(value: Any, rng: random.Random) -> Any:
    """Another value of the same kind."""
    if isinstance(value, np.ndarray):
        return _odd_array(value, rng)
    if isinstance(value, tuple):
        return (value[0], _odd(value[1], rng))
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return rng.choice([*_INTS, value + 1, value - 1, -value])
    if isinstance(value, float):
        return rng.choice(_FLOATS)
    if isinstance(value, bytes) and value:
        return damaged(value, rng)
    if isinstance(value, list):
        return [*value, *value] if rng.random() < 0.5 else value[::-1]
    return rng.choice(_VALUES)


def _odd_array(array: np.ndarray, rng: random.Random) -> np.ndarray:
    """Another number in it, fewer or more elements, another type or shape."""
    kind = rng.randrange(5)
    if kind == 0:
        return array.astype(rng.choice(_DTYPES))
    if kind == 1:
        return array.ravel()[: rng.randrange(array.size + 1)]
    if kind == 2:
        return np.concatenate([array.ravel(), array.ravel()])
    if kind == 3:
        return array.T.copy() if array.ndim > 1 else array.reshape(-1, 1)
    made = array.copy()
    if made.size:
        at = rng.randrange(made.size)
        values = _FLOATS if made.dtype.kind == "f" else _INTS
        made.reshape(-1)[at : at + 1] = np.array([rng.choice(values)]).astype(made.dtype)
    return made
