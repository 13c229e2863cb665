"""Tensor intrinsics: what an instruction computes, and how it is called.

`description` computes the result in plain loops on buffers of fixed shape; `implementation` does
the same on the same buffers by intrinsics of a target. Both take the same parameters in the same
order. A buffer of the implementation may have variables as strides: they are bound to the strides
of the buffer that it is applied to.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module

from tilewright.ir import Block, Buffer, Function, Var, walk
from tilewright.support.errors import UserError, nearest
from tilewright.target import Target

_KNOWN: dict[str, TensorIntrin] = {}
#: The targets' intrinsics, made when they are first needed.
_MAKERS: dict[str, Callable[[], TensorIntrin]] = {}
#: Families whose members are made from their names, by the first word of the name.
_FAMILIES: dict[str, Callable[[str], TensorIntrin | None]] = {}


@dataclass(frozen=True, slots=True)
class TensorIntrin:
    """An instruction on tiles.

    `needs` lists alternative sets of target features (LLVM's names), one of which is required; each
    entry is one set, separated by spaces.
    """

    name: str
    description: Function
    implementation: Function
    needs: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        described, made = self.description.params, self.implementation.params
        if len(described) != len(made) or any(
            _kind(a) != _kind(b) for a, b in zip(described, made, strict=False)
        ):
            raise UserError(
                f"the description and the implementation of tensor intrinsic {self.name} differ",
                reason="their parameters are not of the same types and ranks",
            )


def has_features(target: Target, needs: tuple[str, ...]) -> bool:
    """Whether `target` has one of the sets of features."""
    return not needs or any(all(map(target.has, way.split())) for way in needs)


def require_features(function: Function, target: Target) -> None:
    """Refuse a function that was tensorized for a machine with other features than `target`."""
    for block in walk(function.body):
        name = block.annotations.get("tensor_intrin") if isinstance(block, Block) else None
        if name is None or has_features(target, find_intrin(name).needs):
            continue
        assert isinstance(block, Block)
        needed = " or ".join(way.replace(" ", " and ") for way in find_intrin(name).needs)
        raise UserError(
            f"cannot build {function.name}: block {block.name} is tensorized by {name}",
            reason=f"that needs {needed}, and the target lacks it: {target}",
            remedy="build for a machine that has it, or leave tensorize out",
        )


def register_intrin(intrin: TensorIntrin) -> TensorIntrin:
    """Register a tensor intrinsic by name, so that traces can refer to it."""
    known = _KNOWN.get(intrin.name)
    if known is not None and known is not intrin:
        raise UserError(f"there is a tensor intrinsic {intrin.name} already")
    _KNOWN[intrin.name] = intrin
    return intrin


def register_maker(name: str, make: Callable[[], TensorIntrin]) -> None:
    """Register a tensor intrinsic that is made on first use, because that is costly."""
    _MAKERS[name] = make


def register_family(word: str, make: Callable[[str], TensorIntrin | None]) -> None:
    """Register all tensor intrinsics `word.REST`; `make` gets the rest (None: there is none)."""
    _FAMILIES[word] = make


def find_intrin(name: str) -> TensorIntrin:
    """The tensor intrinsic of this name."""
    _load_tables()
    found = _KNOWN.get(name)
    if found is None:
        found = _make(name)
    if found is None:
        known = {**_KNOWN, **_MAKERS}
        raise UserError(f"there is no tensor intrinsic {name!r}", remedy=nearest(name, known))
    return found


def _make(name: str) -> TensorIntrin | None:
    word, _, rest = name.partition(".")
    found = _MAKERS[name]() if name in _MAKERS else None
    if found is None and word in _FAMILIES:
        found = _FAMILIES[word](rest)
    return None if found is None else register_intrin(found)


def _load_tables() -> None:
    """Import the tables of the targets, which depend on this module."""
    import_module("tilewright.schedule.intrinsics")


def _kind(param: Buffer | Var) -> tuple[object, int]:
    return param.dtype, param.ndim if isinstance(param, Buffer) else -1
