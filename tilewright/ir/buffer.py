"""Buffers: named memory with an element type, a shape and a layout."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, cast

from tilewright.ir.expr import Const, Expr, Load, Var, as_expr, const
from tilewright.support.dtype import DType
from tilewright.support.errors import UserError

#: Where a buffer can live: `global` memory; `local` to one thread (stack or registers); `shared` by
#: the threads of one block; `tile`: the matrix registers of an accelerator unit.
SCOPES: Final = ("global", "local", "shared", "tile")


class Buffer:
    """Memory for `shape` elements; keeps its identity, its name is a hint.

    `strides` (in elements) are those of a compact row-major array unless given; `offset` is the
    element at which the data starts. The base address is a multiple of `alignment`.
    """

    __slots__ = ("alignment", "dtype", "name", "offset", "scope", "shape", "strides")

    def __init__(
        self,
        name: str,
        dtype: object,
        shape: Iterable[Any],
        *,
        strides: Sequence[Any] | None = None,
        offset: Any = 0,
        scope: str = "global",
        alignment: int | None = None,
    ) -> None:
        self.name, self.dtype = name, DType.of(dtype)
        self.shape = tuple(as_extent(d, name) for d in shape)
        self.strides = None if strides is None else tuple(as_expr(s) for s in strides)
        self.offset = as_expr(offset)
        self.scope = scope
        self.alignment = alignment or self.dtype.itemsize
        self._check()

    def _check(self) -> None:
        if self.scope not in SCOPES:
            raise UserError(
                f"buffer {self.name} has no scope {self.scope!r}",
                remedy=f"use one of {', '.join(SCOPES)}",
            )
        if self.strides is not None and len(self.strides) != self.ndim:
            raise UserError(
                f"buffer {self.name} has {self.ndim} dimensions but {len(self.strides)} strides"
            )
        if self.alignment < 1 or self.alignment & (self.alignment - 1):
            raise UserError(
                f"buffer {self.name} cannot be aligned to {self.alignment} bytes",
                remedy="use a power of two",
            )

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def is_compact(self) -> bool:
        """Row-major without gaps, starting at element 0."""
        if self.offset is not const(0):
            return False
        own = self.strides
        return own is None or all(a is b for a, b in zip(own, self._row_major(), strict=True))

    def stride_exprs(self) -> tuple[Expr, ...]:
        """The stride of every dimension, in elements."""
        return self._row_major() if self.strides is None else self.strides

    def _row_major(self) -> tuple[Expr, ...]:
        strides: list[Expr] = []
        step: Expr = const(1)
        for extent in reversed(self.shape):
            strides.append(step)
            step = extent if step is const(1) else _product(step, extent)
        return tuple(reversed(strides))

    def static_size(self) -> int | None:
        """How many elements it holds, where the shape is constant."""
        size = 1
        for extent in self.shape:
            if not isinstance(extent, Const):
                return None
            size *= int(extent.value)
        return size

    def with_(self, **changes: Any) -> Buffer:
        """A new buffer that differs in the given fields."""
        fields: dict[str, Any] = {
            "name": self.name,
            "dtype": self.dtype,
            "shape": self.shape,
            "strides": self.strides,
            "offset": self.offset,
            "scope": self.scope,
            "alignment": self.alignment,
        } | changes
        return Buffer(fields.pop("name"), fields.pop("dtype"), fields.pop("shape"), **fields)

    def __getitem__(self, indices: Any) -> Load:
        each = cast("tuple[Any, ...]", indices if isinstance(indices, tuple) else (indices,))
        if len(each) != self.ndim:
            raise UserError(
                f"{self.name} has {self.ndim} dimensions but was indexed with {len(each)}"
            )
        return Load(self, tuple(as_expr(i) for i in each))

    def __repr__(self) -> str:
        dims = ", ".join(str(d) for d in self.shape)
        return f"{self.name}: {self.dtype}[{dims}]"


def as_extent(value: Any, owner: str) -> Expr:
    """A dimension as an index expression: an integer from 0 up, or a symbolic one."""
    extent = as_expr(value)
    if not extent.dtype.is_integer:
        raise UserError(
            f"{owner} has the extent {value}", reason=f"it is {extent.dtype}", remedy="use integers"
        )
    if isinstance(extent, Const) and extent.value < 0:
        raise UserError(f"{owner} has the negative extent {extent.value}")
    return extent


def symbolic_dims(buffers: Iterable[Buffer]) -> list[Var]:
    """The variables in the shapes of `buffers`, in order of appearance, each once."""
    found: dict[Var, None] = {}
    for buffer in buffers:
        for part in (*buffer.shape, *(buffer.strides or ()), buffer.offset):
            pending = [part]
            while pending:
                node = pending.pop()
                if isinstance(node, Var):
                    found.setdefault(node)
                pending.extend(reversed(node.operands))
    return list(found)


def _product(a: Expr, b: Expr) -> Expr:
    if isinstance(a, Const) and isinstance(b, Const):
        return const(int(a.value) * int(b.value))
    return a if b is const(1) else b * a
