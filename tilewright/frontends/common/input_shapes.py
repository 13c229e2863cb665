"""Shapes of a model's inputs: what the file declares, refined by what the caller gives."""

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


def input_shape(
    name: str, declared: list[GivenDim] | None, given: Shape | None, builder: Builder
) -> list[Expr | int]:
    """The shape of an input; the rank must be told by one of the two."""
    shape = merged_shape(name, declared, given)
    return [_dim(name, k, d, builder) for k, d in enumerate(shape)]


def checked_dim(name: str, extent: int) -> int:
    """A size that an array can have."""
    if not 0 <= extent <= _MAX_DIM:
        raise UserError(f"input {name} has a dimension of {extent}")
    return extent


def merged_shape(name: str, declared: list[GivenDim] | None, given: Shape | None) -> list[GivenDim]:
    """What is declared, with what is given in its place."""
    if given is None:
        return declared or []
    if declared is None:
        return list(given)
    if len(given) != len(declared):
        raise UserError(
            f"shapes gives input {name} the shape {list(given)}",
            reason=f"the model declares {len(declared)} dimensions: {declared}",
        )
    for old, new in zip(declared, given, strict=True):
        if isinstance(old, int) and isinstance(new, int) and old != new:
            raise UserError(
                f"shapes gives input {name} the shape {list(given)}",
                reason=f"the model declares {declared}",
            )
    # A name in place of a number frees a dimension that the exporter has fixed.
    return [d if g is None else g for d, g in zip(declared, given, strict=True)]


def _dim(name: str, axis: int, dim: GivenDim, builder: Builder) -> Expr | int:
    if dim is None:
        return fresh_dim(f"{name}_{axis}")
    return builder.dim(dim) if isinstance(dim, str) else checked_dim(name, int(dim))
