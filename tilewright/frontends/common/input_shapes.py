"""Shapes of a model's inputs, refined by those that the caller gives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tilewright.graph import Builder, fresh_dim
from tilewright.ir import Expr
from tilewright.support.errors import UserError

#: A dimension as the caller gives it: a number, a name, or None for any size.
GivenDim = int | str | None
Shape = Sequence[GivenDim]
_MAX_DIM: Final = 1 << 48


def checked_dim(name: str, extent: int) -> int:
    """A dimension of an input, refused if it makes no sense."""
    if not 0 <= extent <= _MAX_DIM:
        raise UserError(f"input {name} has a dimension of {extent}")
    return extent


def merged_shape(
    name: str, declared: Sequence[GivenDim] | None, given: Shape | None, *, fixed: bool = True
) -> list[GivenDim]:
    """The shape that the caller wants; numbers that the model declares hold if they are `fixed`."""
    if given is None:
        return list(declared or [])
    if declared is None:
        return list(given)
    if len(given) != len(declared):
        raise UserError(
            f"shapes gives input {name} the shape {list(given)}",
            reason=f"the model declares {len(declared)} dimensions: {list(declared)}",
        )
    for old, new in zip(declared, given, strict=True):
        if fixed and isinstance(old, int) and isinstance(new, int) and old != new:
            raise UserError(
                f"shapes gives input {name} the shape {list(given)}",
                reason=f"the model declares {list(declared)}",
            )
    # A name in place of a number frees a dimension that the exporter has fixed.
    return [d if g is None else g for d, g in zip(declared, given, strict=True)]


def input_dims(name: str, shape: Shape, builder: Builder) -> list[Expr | int]:
    """A shape as dimensions of a graph."""
    return [_dim(name, axis, dim, builder) for axis, dim in enumerate(shape)]


def input_shape(
    name: str, declared: Sequence[GivenDim] | None, given: Shape | None, builder: Builder
) -> list[Expr | int]:
    """The dimensions of an input; their number must be declared or given."""
    return input_dims(name, merged_shape(name, declared, given), builder)


def _dim(name: str, axis: int, dim: GivenDim, builder: Builder) -> Expr | int:
    if dim is None:
        return fresh_dim(f"{name}_{axis}")
    return builder.dim(dim) if isinstance(dim, str) else checked_dim(name, int(dim))
