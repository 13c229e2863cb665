"""The text form of targets: `llvm -mcpu=sapphirerapids -mattr=-amx-tile`."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from tilewright.support.config import parse_size
from tilewright.support.errors import UserError, nearest
from tilewright.target.kinds import KINDS, TargetKind


class TargetOptions(NamedTuple):
    """The options in a target's text; None or empty for defaults."""

    kind: TargetKind
    #: The architecture of a GPU; the other options are then the host's.
    arch: str | None = None
    #: The type in which GPUs multiply float32: float32 or tf32.
    products: str | None = None
    mtriple: str | None = None
    mcpu: str | None = None
    #: Features with their signs, in order: the last one wins.
    mattr: tuple[str, ...] = ()
    num_cores: int | None = None
    l1d: int | None = None
    l2: int | None = None
    l3: int | None = None
    line: int | None = None
    #: Multiply-adds of full vector width started per cycle.
    fma_ports: int | None = None


def parse_options(text: str) -> TargetOptions:
    """Parse the text of a target; features and processors are not checked yet."""
    kind, *words = text.split() or [""]
    if kind not in KINDS:
        raise UserError(
            f"target {text!r}", reason=f"unknown kind {kind!r}", remedy=nearest(kind, KINDS)
        )
    given: dict[str, object] = {}
    for word in words:
        name, value = _split(word, text)
        if name in given:
            raise UserError(f"target {text!r}", reason=f"option {name} is given twice")
        given[name] = _READERS[name](name, value)
    for_gpus = [name for name in _OF_GPUS if name in given]
    if for_gpus and KINDS[kind].device != "gpu":
        raise UserError(
            f"target {text!r}",
            reason=f"option {for_gpus[0]} {_OF_GPUS[for_gpus[0]]}, and {kind!r} is for processors",
            remedy="name the processor by -mcpu",
        )
    fields = {name[1:].replace("-", "_"): value for name, value in given.items()}
    return TargetOptions(KINDS[kind])._replace(**fields)


def _split(word: str, text: str) -> tuple[str, str]:
    name, equals, value = word.partition("=")
    if name not in _READERS:
        raise UserError(
            f"target {text!r}",
            reason=f"unknown option {name!r}",
            remedy=nearest(name, _READERS),
        )
    if not equals or not value:
        raise UserError(f"target {text!r}", reason=f"option {name} needs a value: {name}=…")
    return name, value


def _text(name: str, value: str) -> str:
    return value


def _products(name: str, value: str) -> str:
    if value not in _PRODUCTS:
        raise _bad(name, value, f"use {' or '.join(_PRODUCTS)}")
    return value


def _features(name: str, value: str) -> tuple[str, ...]:
    words = tuple(word for word in value.split(",") if word)
    for word in words:
        if not re.fullmatch(r"[+-][\w.-]+", word):
            raise _bad(name, word, "write +feature to add and -feature to remove, with commas")
    return words


def _count(name: str, value: str) -> int:
    if not value.isdecimal() or int(value) < 1:
        raise _bad(name, value, "give a whole number, 1 or more")
    return int(value)


def _size(name: str, value: str) -> int:
    try:
        return parse_size(value)
    except ValueError:
        raise _bad(name, value, "give a number of bytes, such as 48K or 2M") from None


def _bad(name: str, value: str, remedy: str) -> UserError:
    return UserError(f"target option {name} has no use for {value!r}", remedy=remedy)


_PRODUCTS = ("float32", "tf32")
#: Options for GPUs.
_OF_GPUS = {"-arch": "names a GPU", "-products": "is about instructions of GPUs"}
_READERS: dict[str, Callable[[str, str], object]] = {
    "-arch": _text,
    "-products": _products,
    "-mtriple": _text,
    "-mcpu": _text,
    "-mattr": _features,
    "-num-cores": _count,
    "-l1d": _size,
    "-l2": _size,
    "-l3": _size,
    "-line": _size,
    "-fma-ports": _count,
}
