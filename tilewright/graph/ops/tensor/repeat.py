"""Elements that occur several times in the result: expand and tile."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.graph.ir import KNOWN_LIMIT, Array, Value
from tilewright.graph.ir.attributes import Dims, Ints
from tilewright.graph.ir.op import op
from tilewright.graph.ir.types import TensorType, Type, as_dim, known_dim
from tilewright.graph.sizes.broadcast import broadcast_index, broadcast_shapes
from tilewright.ir import Expr, const
from tilewright.support.errors import UserError
from tilewright.tensor import te


@op
def expand(x: Value, *, shape: Dims) -> Type:
    """`x` broadcast against a tensor of this shape; an extent of 1 keeps that of `x`."""
    return x.tensor.with_shape(broadcast_shapes(x.shape, [as_dim(d) for d in shape]))


@expand.reference
def expand_reference(x: Array, *, shape: Ints) -> Array:
    return np.broadcast_to(x, np.broadcast_shapes(x.shape, shape)).copy()


@expand.compute
def expand_compute(x: te.Tensor, *, shape: Dims, out: TensorType) -> te.Tensor:
    del shape
    return te.compute(
        out.shape, lambda *i: x[broadcast_index(x.shape, out.shape, i)], name="expand"
    )


@expand.symbolic
def expand_symbolic(x: Value, *, shape: Dims) -> Array | None:
    sizes = [known_dim(d) for d in shape]
    if x.known is None or None in sizes:
        return None
    numbers = [d for d in sizes if d is not None]
    return expand_reference(x.known, shape=tuple(numbers)) if _is_small(numbers) else None


def _is_small(numbers: list[int]) -> bool:
    return int(np.prod([float(n) for n in numbers])) <= KNOWN_LIMIT


@op
def tile(x: Value, *, repeats: Dims) -> Type:
    """`x` so many times along each dimension."""
    if len(repeats) != x.ndim:
        raise UserError(f"{len(repeats)} repeats are given for {x.ndim} dimensions")
    return x.tensor.with_shape(d * r for d, r in zip(x.shape, repeats, strict=True))


@tile.reference
def tile_reference(x: Array, *, repeats: Ints) -> Array:
    return np.tile(x, repeats)


@tile.compute
def tile_compute(x: te.Tensor, *, repeats: Dims, out: TensorType) -> te.Tensor:
    def index(i: Expr, extent: Expr, repeat: Any) -> Expr:
        if known_dim(repeat) == 1:
            return i
        return const(0) if known_dim(extent) == 1 else i % extent

    def element(*i: Expr) -> Expr:
        return x[tuple(index(*t) for t in zip(i, x.shape, repeats, strict=True))]

    return te.compute(out.shape, element, name="tile")


@tile.symbolic
def tile_symbolic(x: Value, *, repeats: Dims) -> Array | None:
    numbers = [known_dim(r) for r in repeats]
    if x.known is None or None in numbers:
        return None
    given = [n for n in numbers if n is not None]
    return np.tile(x.known, given) if _is_small([*given, x.known.size]) else None
