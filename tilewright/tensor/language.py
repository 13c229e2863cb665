"""The words of `@script`, so that linters, editors and plain Python know them.

    from tilewright.tensor.language import alloc, f32, parallel

Inside a script function they mean what `ir.printer` says; elsewhere they only complain. Types can
be subscripted anywhere: `f32["n", 4]` is what an annotation evaluates to.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.ir import INTRINSICS, DType
from tilewright.support.errors import UserError


class BufferType:
    """The type of a buffer, as an annotation has it."""

    def __init__(self, element: DType, dims: tuple[Any, ...]) -> None:
        self.element, self.dims = element, dims

    def __repr__(self) -> str:
        return f"{self.element}[{', '.join(map(str, self.dims)) or '()'}]"


class ElementType:
    """An element type that can be subscripted and, in scripts, called."""

    def __init__(self, element: DType) -> None:
        self.element = element

    @property
    def dtype(self) -> np.dtype[Any]:
        """How NumPy, and everything that asks it, sees the type."""
        return self.element.numpy

    def __getitem__(self, dims: Any) -> Any:
        several: tuple[Any, ...] = dims if type(dims) is tuple else (dims,)
        return BufferType(self.element, several)

    def __call__(self, _value: object) -> Any:
        raise _outside(repr(self))

    def __repr__(self) -> str:
        return self.element.short


class Word:
    """A word that has its meaning inside a script function."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, *_args: object, **_named: object) -> Any:
        raise _outside(self.name)

    def __repr__(self) -> str:
        return self.name


def _outside(name: str) -> UserError:
    return UserError(
        f"{name}(…) was called outside a script function",
        remedy="decorate the function with @script",
    )


f64, f32, f16, bf16 = (ElementType(DType.of(n)) for n in ("f64", "f32", "f16", "bf16"))
i64, i32, i16, i8 = (ElementType(DType.of(n)) for n in ("i64", "i32", "i16", "i8"))
u64, u32, u16, u8 = (ElementType(DType.of(n)) for n in ("u64", "u32", "u16", "u8"))
boolean = ElementType(DType.of("bool"))

alloc, let = Word("alloc"), Word("let")
parallel, vectorized, unrolled, thread = map(Word, ("parallel", "vectorized", "unrolled", "thread"))
block, init, scope = Word("block"), Word("init"), Word("scope")
spatial, reduce, ordered = Word("spatial"), Word("reduce"), Word("ordered")
where, reads, writes, note = map(Word, ("where", "reads", "writes", "note"))
store, load, ramp, broadcast = map(Word, ("store", "load", "ramp", "broadcast"))
truncdiv, truncmod = Word("truncdiv"), Word("truncmod")


def __getattr__(name: str) -> Any:
    """The intrinsics: exp, sqrt, popcount, …"""
    if name in INTRINSICS:
        return Word(name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
