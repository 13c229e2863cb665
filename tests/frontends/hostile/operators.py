"""Models of one operator, with operands and attributes by chance.

Which attributes an operator may have is read out of its converter: the words that it asks for.
Seeds that are damaged hold a few operators; these models reach the converters of all.
"""

from __future__ import annotations

import inspect
import random
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from typing import Any, Final

import numpy as np

from tilewright.frontends import operators_of

_TEXT: Final = re.compile(r"""(?<![{\w])["']([A-Za-z_]\w*)["']""")
_CALLED: Final = re.compile(r"\b([A-Za-z_]\w*)\(")
#: Versions of operators; only ONNX's have several.
_VERSIONS: Final = (1, 7, 11, 13, 18, 22)
_SMALL: Final = (-2, -1, 0, 1, 1, 2, 2, 3, 4)
_LARGE: Final = (7, 64, 65536, 1 << 31, 10**12, -(1 << 63))
_REALS: Final = (0.0, 0.5, 1.0, -1.0, 2.0, 1e-5, 1e30, float("nan"), float("inf"))
_DTYPES: Final = (*["float32"] * 4, "int32", "int64", "bool", "uint8", "int8", "float16", "uint64")


@dataclass
class Operand:
    """An array, which is an input of the model or a constant in it."""

    name: str
    array: np.ndarray
    constant: bool


@dataclass
class Drawn:
    """An operator by its domain and name, with what it is given."""

    domain: str
    op: str
    operands: list[Operand]
    attrs: dict[str, Any]
    #: Words that the converter knows, for formats that have other places for them.
    words: list[str] = field(default_factory=list[str])

    @property
    def inputs(self) -> list[Operand]:
        return [x for x in self.operands if not x.constant]

    @property
    def shapes(self) -> dict[str, list[int]]:
        return {x.name: list(x.array.shape) for x in self.inputs}


def drawn(framework: str, rng: random.Random) -> Drawn:
    """An operator of a front end's table, with operands and attributes by chance."""
    domain, op = rng.choice(operators_of(framework))
    words = words_of(framework, domain, op)
    names = rng.sample(words, min(len(words), rng.choice([0, 1, 2, 3, 5])))
    attrs = {name: value(words, rng) for name in names}
    return Drawn(domain, op, _operands(rng), attrs, words)


@cache
def words_of(framework: str, domain: str, op: str) -> list[str]:
    """The words in the source of an operator's converter, and of what it calls beside it."""
    table = import_module(f"tilewright.frontends.{framework}.table").TABLE
    found = {table.find(domain, op, version) for version in _VERSIONS} - {None}
    texts = [_source(convert) for convert in found]
    return sorted({word for text in texts for word in _TEXT.findall(text)})


def _source(convert: Callable[..., Any]) -> str:
    plain: Any = inspect.unwrap(convert)
    text = inspect.getsource(plain)
    around: Mapping[str, Any] = plain.__globals__
    called = {name for name in _CALLED.findall(text) if inspect.isfunction(around.get(name))}
    return text + "".join(inspect.getsource(around[name]) for name in sorted(called))


def value(words: list[str], rng: random.Random) -> Any:
    """What an attribute may hold."""
    kind = rng.randrange(8)
    if kind == 0:
        return rng.choice([True, False])
    if kind == 1:
        return rng.choice(_REALS)
    if kind in (2, 3):
        return [rng.choice(_SMALL) for _ in range(rng.randrange(6))]
    if kind == 4:
        return rng.choice([*words, "SAME", "valid", "float32", ""])
    return rng.choice(_SMALL) if rng.random() < 0.9 else rng.choice(_LARGE)


# ---- operands -----------------------------------------------------------------------------------


def _operands(rng: random.Random) -> list[Operand]:
    """A few arrays, most of them of one type and shape."""
    shape = [rng.choice([1, 2, 3, 4]) for _ in range(rng.choice([0, 1, 2, 2, 3, 3, 4, 4, 5]))]
    dtype = rng.choice(_DTYPES)
    return [_operand(f"x{k}", shape, dtype, rng) for k in range(rng.choice([1, 1, 2, 2, 3, 4, 6]))]


def _operand(name: str, shape: list[int], dtype: str, rng: random.Random) -> Operand:
    kind = rng.random()
    if kind < 0.3:
        shape = [rng.choice([0, 1, 2, 3, 3, 4]) for _ in range(rng.randrange(5))]
    elif kind < 0.5:
        shape = [rng.choice([1, 2, 3, 4])] if rng.random() < 0.7 else []
        dtype = rng.choice(["int32", "int64", dtype])
    # Where all are constants, the compiler computes the result.
    constant = rng.random() < (0.5 if name != "x0" else 0.1)
    numbers = [rng.choice(_SMALL) for _ in range(int(np.prod(shape)))]
    array = np.array(numbers).reshape(shape).astype(dtype)
    if array.size and rng.random() < 0.2:
        values = _REALS if array.dtype.kind == "f" else _LARGE
        with np.errstate(all="ignore"):
            array.flat[rng.randrange(array.size)] = np.array(rng.choice(values)).astype(dtype)
    return Operand(name, array, constant)
