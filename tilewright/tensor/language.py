"""The keywords of `@script`, so that linters, editors and plain Python know them.

    from tilewright.tensor.language import alloc, f32, parallel

Inside a script function they mean what `ir.text.printer` says; elsewhere, using them is an error.
Types can be subscripted anywhere: `f32["n", 4]` is what an annotation evaluates to.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.ir import INTRINSICS, DType
from tilewright.support.errors import UserError


class BufferType:
    """The type of a buffer, in an annotation."""

    def __init__(self, element: DType, dims: Any) -> None:
        self.element = element
        self.dims: tuple[Any, ...] = tuple(dims) if type(dims) in (tuple, list) else (dims,)

    def __repr__(self) -> str:
        return f"{self.element}[{', '.join(map(str, self.dims)) or '()'}]"


class ElementType:
    """An element type that can be subscripted and, in scripts, called."""

    def __init__(self, element: DType) -> None:
        self.element = element

    @property
    def dtype(self) -> np.dtype[Any]:
        """The NumPy type, for NumPy and whatever uses its interfaces."""
        return self.element.numpy

    def __getitem__(self, dims: Any) -> Any:
        return BufferType(self.element, dims)

    def __call__(self, _value: object) -> Any:
        raise _outside_error(repr(self))

    def __repr__(self) -> str:
        return self.element.short


class Word:
    """A keyword that has its meaning inside a script function."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, *_args: object, **_named: object) -> Any:
        raise _outside_error(self.name)

    def __repr__(self) -> str:
        return self.name


def _outside_error(name: str) -> UserError:
    return UserError(
        f"{name}(…) was called outside a script function",
        remedy="decorate the function with @script",
    )


def _type(name: str) -> Any:
    """Any for type checkers, so that a parameter `A=f32["n"]` may be indexed and computed with."""
    return ElementType(DType.of(name))


f64, f32, f16, bf16 = _type("f64"), _type("f32"), _type("f16"), _type("bf16")
i64, i32, i16, i8 = _type("i64"), _type("i32"), _type("i16"), _type("i8")
u64, u32, u16, u8 = _type("u64"), _type("u32"), _type("u16"), _type("u8")
boolean = _type("bool")

alloc, let = Word("alloc"), Word("let")
parallel, vectorized = Word("parallel"), Word("vectorized")
unrolled, thread = Word("unrolled"), Word("thread")
block, init, scope = Word("block"), Word("init"), Word("scope")
spatial, reduce, ordered = Word("spatial"), Word("reduce"), Word("ordered")
where, reads, writes, note = Word("where"), Word("reads"), Word("writes"), Word("note")
store, load = Word("store"), Word("load")
ramp, broadcast = Word("ramp"), Word("broadcast")
truncdiv, truncmod = Word("truncdiv"), Word("truncmod")


def __getattr__(name: str) -> Any:
    """The intrinsics: exp, sqrt, popcount, …"""
    if name in INTRINSICS:
        return Word(name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
