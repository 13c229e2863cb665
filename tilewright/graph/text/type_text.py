"""Types as text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.graph.ir.types import (
    ANY,
    DataType,
    FunctionType,
    OptionalType,
    SequenceType,
    TensorType,
    TupleType,
    Type,
    UnknownType,
)
from tilewright.ir import Expr, Namer, expr_text


def type_text(type_: Type, namer: Namer | None = None) -> str:
    """A type in the text form."""
    return _TEXT[type(type_)](type_, namer)


def types_text(types: Any, namer: Namer | None = None) -> str:
    """Several types with commas between them."""
    return ", ".join(type_text(t, namer) for t in types)


def dim_text(dim: Expr, namer: Namer | None = None) -> str:
    """A dimension; `_` where it differs from element to element of a sequence."""
    return "_" if dim is ANY else expr_text(dim, namer)


def _tensor(t: TensorType, namer: Namer | None) -> str:
    # Subscripts need something between the brackets.
    return f"{t.dtype.short}[{', '.join(dim_text(d, namer) for d in t.shape) or '()'}]"


def _tuple(t: TupleType, namer: Namer | None) -> str:
    comma = "," if len(t.items) == 1 else ""
    return f"({types_text(t.items, namer)}{comma})"


def _function(t: FunctionType, namer: Namer | None) -> str:
    return f"fn[({types_text(t.params, namer)}), ({types_text(t.results, namer)})]"


_TEXT: dict[type[Type], Callable[[Any, Namer | None], str]] = {
    TensorType: _tensor,
    TupleType: _tuple,
    FunctionType: _function,
    SequenceType: lambda t, n: f"seq[{type_text(t.element, n)}]",
    OptionalType: lambda t, n: f"opt[{type_text(t.element, n)}]",
    DataType: lambda t, _: t.name,
    UnknownType: lambda t, _: t.dtype.short + "[...]" * t.differs,
}
