"""Names for the text form: unique, valid Python identifiers, close to the hints."""

from __future__ import annotations

import keyword
import re
from functools import lru_cache
from itertools import count
from typing import Final

from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Var
from tilewright.ir.intrinsics import INTRINSICS
from tilewright.support.dtype import DType
from tilewright.support.errors import UserError

#: The keywords of the text form, which are not used as names of variables.
WORDS: Final = frozenset(
    "alloc let range parallel vectorized unrolled thread block init scope spatial reduce ordered "
    "where reads writes note attrs named store load broadcast ramp cast call min max truncdiv "
    "truncmod neg strides offset align opaque float".split()
)
_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9_]")
_SUFFIX = re.compile(r"_(\d+)$")


class Namer:
    """Gives every variable and buffer a name that is unique in its scope."""

    def __init__(self) -> None:
        self._names: dict[Var | Buffer, str] = {}
        self._taken: set[str] = set()
        self._next: dict[str, int] = {}

    def __call__(self, thing: Var | Buffer) -> str:
        """The name of `thing`; if it was never bound, it is named at its first use."""
        return self._names.get(thing) or self.bind(thing)

    def bind(self, thing: Var | Buffer) -> str:
        """A fresh name for `thing`, which comes into scope here."""
        name = base = plain_name(thing.name)
        if name in self._taken:
            name = self._numbered(base)
        self._taken.add(name)
        self._names[thing] = name
        return name

    def release(self, *things: Var | Buffer) -> None:
        """`things` go out of scope; later ones may reuse their names."""
        for thing in things:
            name = self._names.pop(thing, None)
            if name is None:
                continue
            self._taken.discard(name)
            number = _SUFFIX.search(name)
            if number:
                base = name[: number.start()]
                self._next[base] = min(int(number[1]), self._next.get(base, 1))

    def adopt(self, other: Namer) -> None:
        """Know all names that `other` knows."""
        self._names.update(other._names)
        self._taken.update(other._taken)
        self._next.update(other._next)

    def _numbered(self, base: str) -> str:
        number = self._next.get(base, 1)
        while f"{base}_{number}" in self._taken:
            number += 1
        self._next[base] = number + 1
        return f"{base}_{number}"


class PlainNamer(Namer):
    """Names by order of appearance: v0, v1, … for variables, p0, p1, … for buffers."""

    def __init__(self) -> None:
        super().__init__()
        self._counts = {Var: count(), Buffer: count()}

    def bind(self, thing: Var | Buffer) -> str:
        letter = "p" if isinstance(thing, Buffer) else "v"
        self._names[thing] = name = f"{letter}{next(self._counts[type(thing)])}"
        return name


def plain_name(hint: str) -> str:
    """`hint` as an identifier that is no keyword of the language."""
    name = _NOT_IN_A_NAME.sub("_", hint) or "v"
    if name[0].isdigit():
        name = "_" + name
    if keyword.iskeyword(name) or name in WORDS or name in INTRINSICS or is_dtype(name):
        name += "_"
    return name


def is_dtype(name: str) -> bool:
    """Whether `name` names an element type, with lanes or without."""
    return find_dtype(name) is not None


@lru_cache(maxsize=4096)
def find_dtype(name: str) -> DType | None:
    """The element type of this name, if there is one."""
    try:
        return DType.of(name)
    except UserError:
        return None
