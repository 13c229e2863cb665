"""Tensor intrinsics: what an instruction computes, and how it is called.

`description` says in plain loops what happens to buffers of fixed shape; `implementation` does the
same to the same buffers by intrinsics of a target. Both take the same parameters in the same order.
A buffer of the implementation may have variables as strides: they are bound to the strides of the
buffer that it is applied to.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.ir import Buffer, Function, Var
from tilewright.support.errors import UserError, nearest

_KNOWN: dict[str, TensorIntrin] = {}


@dataclass(frozen=True, slots=True)
class TensorIntrin:
    """An instruction on tiles."""

    name: str
    description: Function
    implementation: Function

    def __post_init__(self) -> None:
        told, done = self.description.params, self.implementation.params
        if len(told) != len(done) or any(
            _kind(a) != _kind(b) for a, b in zip(told, done, strict=False)
        ):
            raise UserError(
                f"the description and the implementation of tensor intrinsic {self.name} differ",
                reason="their parameters are not of the same types and ranks",
            )


def register_intrin(intrin: TensorIntrin) -> TensorIntrin:
    """Make a tensor intrinsic known by its name, so that traces can name it."""
    known = _KNOWN.get(intrin.name)
    if known is not None and known is not intrin:
        raise UserError(f"there is a tensor intrinsic {intrin.name} already")
    _KNOWN[intrin.name] = intrin
    return intrin


def find_intrin(name: str) -> TensorIntrin:
    """The tensor intrinsic of this name."""
    found = _KNOWN.get(name)
    if found is None:
        raise UserError(f"there is no tensor intrinsic {name!r}", remedy=nearest(name, _KNOWN))
    return found


def _kind(param: Buffer | Var) -> tuple[object, int]:
    return param.dtype, param.ndim if isinstance(param, Buffer) else -1
