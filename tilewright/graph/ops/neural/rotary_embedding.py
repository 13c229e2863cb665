"""Rotary position embedding."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.graph.ir import Array, Value
from tilewright.graph.ir.op import op
from tilewright.graph.ir.types import Type, known_dim
from tilewright.graph.ops.elementwise.elementwise import require_kind
from tilewright.graph.ops.reduce.reduced import accumulator
from tilewright.graph.sizes.agreement import require_at_most, require_equal, require_same_shape
from tilewright.ir import Expr
from tilewright.support.errors import UserError
from tilewright.tensor import te


@op
def rotary_embedding(
    x: Value,
    cos: Value,
    sin: Value,
    positions: Value | None = None,
    *,
    interleaved: bool = False,
    rotary_dim: int = 0,
) -> Type:
    """Pairs of elements of B×H×L×D rotated by an angle that depends on the position.

    `cos` and `sin` are B×L×(R/2), or P×(R/2) where `positions` (B×L) says which row to take. The
    first R = `rotary_dim` elements (0: all) are rotated: each with its neighbour where
    `interleaved`, else the first half with the second.
    """
    require_kind("float", x, cos, sin)
    if x.ndim != 4:
        raise UserError(f"rotary_embedding takes a tensor of 4 dimensions, not {x}")
    wanted = 3 if positions is None else 2
    if cos.ndim != wanted or sin.ndim != wanted:
        raise UserError(f"cos and sin have {wanted} dimensions here, not {cos.ndim}, {sin.ndim}")
    require_same_shape(cos.shape, sin.shape, "cos and sin")
    if positions is not None:
        require_kind("integer", positions)
    rows = cos.shape[:2] if positions is None else positions.shape
    require_same_shape(rows, [x.shape[0], x.shape[2]], "angles and B×L")
    require_equal(rotary_dim or x.shape[3], cos.shape[-1] * 2, "elements and two for each angle")
    require_at_most(rotary_dim, x.shape[3], "elements that are rotated")
    return x.type


@rotary_embedding.reference
def rotary_embedding_reference(
    x: Array,
    cos: Array,
    sin: Array,
    positions: Array | None,
    *,
    interleaved: bool,
    rotary_dim: int,
) -> Array:
    size = rotary_dim or x.shape[3]
    c, s = (
        (t if positions is None else t[positions]).astype(np.float64)[:, None] for t in (cos, sin)
    )
    first = slice(0, size, 2) if interleaved else slice(0, size // 2)
    second = slice(1, size, 2) if interleaved else slice(size // 2, size)
    a, b = (x[..., part].astype(np.float64) for part in (first, second))
    result = x.astype(np.float64)
    result[..., first], result[..., second] = c * a - s * b, s * a + c * b
    return result.astype(x.dtype)


@rotary_embedding.compute
def rotary_embedding_compute(
    x: te.Tensor,
    cos: te.Tensor,
    sin: te.Tensor,
    positions: te.Tensor | None,
    *,
    interleaved: bool,
    rotary_dim: int,
) -> te.Tensor:
    work = accumulator(x.dtype)
    size: Any = rotary_dim or known_dim(x.shape[3]) or x.shape[3]
    half = size // 2

    def angle(table: te.Tensor, b: Expr, i: Expr, n: Expr) -> Expr:
        row: tuple[Any, ...] = (b, i) if positions is None else (positions[b, i],)
        return te.cast(table[(*row, n)], work)

    def element(b: Expr, h: Expr, i: Expr, d: Expr) -> Expr:
        pair = te.floordiv(d, 2) if interleaved else te.floormod(d, half)
        is_second = te.floormod(d, 2) == te.const(1) if interleaved else d >= half
        step = 1 if interleaved else half
        other = te.select(is_second, d - step, d + step)
        own, partner = te.cast(x[b, h, i, d], work), te.cast(x[b, h, i, other], work)
        other = angle(sin, b, i, pair) * partner
        rotated = own * angle(cos, b, i, pair) + te.select(is_second, other, -other)
        value = te.if_then_else(d < size, rotated, own) if rotary_dim else rotated
        return te.cast(value, x.dtype)

    return te.compute(x.shape, element, name="rotary_embedding")
