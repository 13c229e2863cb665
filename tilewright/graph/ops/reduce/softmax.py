"""Softmax and kin: along one axis, or over all axes from a given one on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.graph.ir import Array, Value
from tilewright.graph.ir.op import op
from tilewright.graph.ir.types import Type
from tilewright.graph.ops.elementwise.elementwise import mapped, require_kind
from tilewright.graph.ops.reduce.reduced import accumulator, reduce_over
from tilewright.graph.sizes.axes import axis_of
from tilewright.ir import Expr
from tilewright.tensor import te


@op
def softmax(x: Value, *, axis: int = -1, coarse: bool = False) -> Type:
    """exp(x) / sum(exp(x)) along `axis`; `coarse` within 2**-16, for what is rounded to 16 bits."""
    require_kind("float", x)
    axis_of(axis, x.ndim)
    return x.type


@softmax.reference
def softmax_reference(x: Array, *, axis: int, coarse: bool) -> Array:
    del coarse
    with np.errstate(all="ignore"):
        wide = x.astype(np.float64)
        powers = np.exp(wide - wide.max(axis=axis, keepdims=True, initial=-np.inf))
        return (powers / powers.sum(axis=axis, keepdims=True)).astype(x.dtype)


@softmax.compute
def softmax_compute(x: te.Tensor, *, axis: int, coarse: bool) -> te.Tensor:
    exp = te.coarse_exp if coarse else te.exp
    powers, total, _ = shifted_powers(x, axis_of(axis, x.ndim), "softmax", exp)
    # A row shares its sum: one division for all.
    return mapped(lambda e, t: te.cast(e * (1 / t), x.dtype), powers, total, name="softmax")


def shifted_powers(
    x: te.Tensor, axis: int, name: str, exp: Callable[[Expr], Expr] = te.exp
) -> tuple[te.Tensor, te.Tensor, te.Tensor]:
    """exp(x - max), its sum and the max along `axis`, in float32 at least."""
    work = accumulator(x.dtype)

    def wide(e: Expr) -> Expr:
        return te.cast(e, work)

    greatest = reduce_over(te.max, x, (axis,), True, wide, f"{name}_max")
    # None is above the greatest; saying so spares exp its check for overflow.
    powers = mapped(lambda e, m: exp(te.minimum(wide(e) - m, 0)), x, greatest, name=f"{name}_exp")
    return powers, reduce_over(te.sum, powers, (axis,), True, name=f"{name}_sum"), greatest


@op
def log_softmax(x: Value, *, axis: int = -1) -> Type:
    """log(softmax(x)) along `axis`."""
    require_kind("float", x)
    axis_of(axis, x.ndim)
    return x.type


@log_softmax.reference
def log_softmax_reference(x: Array, *, axis: int) -> Array:
    with np.errstate(all="ignore"):
        wide = x.astype(np.float64)
        shifted = wide - wide.max(axis=axis, keepdims=True, initial=-np.inf)
        return (shifted - np.log(np.exp(shifted).sum(axis=axis, keepdims=True))).astype(x.dtype)


@log_softmax.compute
def log_softmax_compute(x: te.Tensor, *, axis: int) -> te.Tensor:
    work = accumulator(x.dtype)
    _, total, greatest = shifted_powers(x, axis_of(axis, x.ndim), "log_softmax")

    def element(e: Expr, m: Expr, t: Expr) -> Expr:
        return te.cast(te.cast(e, work) - m - te.log(t), x.dtype)

    return mapped(element, x, greatest, total, name="log_softmax")


@op
def hardmax(x: Value, *, axis: int = -1) -> Type:
    """1 for the first greatest element along `axis`, 0 for all others."""
    require_kind("float", x)
    axis_of(axis, x.ndim)
    return x.type


@hardmax.reference
def hardmax_reference(x: Array, *, axis: int) -> Array:
    result = np.zeros_like(x)
    if x.size:
        np.put_along_axis(result, x.argmax(axis=axis, keepdims=True), 1, axis=axis)
    return result


@hardmax.compute
def hardmax_compute(x: te.Tensor, *, axis: int) -> te.Tensor:
    axis = axis_of(axis, x.ndim)
    k = te.reduce_axis(x.shape[axis], name="k")

    def greatest(*i: Expr) -> Any:
        return te.argmax(x[(*i[:axis], k, *i[axis + 1 :])], axis=k)

    shape = [1 if a == axis else d for a, d in enumerate(x.shape)]
    at = te.compute(shape, greatest, name="hardmax_at")

    def element(*i: Expr) -> Expr:
        is_it = at[(*i[:axis], 0, *i[axis + 1 :])] == i[axis]
        return te.cast(is_it, x.dtype)

    return te.compute(x.shape, element, name="hardmax")
