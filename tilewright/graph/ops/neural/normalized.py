"""Helpers for normalisations: mean and variance over axes, in float32 at least."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.graph.ir import Array, Value
from tilewright.graph.ir.attributes import Ints
from tilewright.graph.ops.elementwise.elementwise import mapped
from tilewright.graph.ops.reduce.reduced import accumulator, count_of, reduce_over
from tilewright.graph.sizes.agreement import require_equal
from tilewright.ir import Expr
from tilewright.support.errors import UserError
from tilewright.tensor import te


def moments(x: te.Tensor, axes: Ints, name: str) -> tuple[te.Tensor, te.Tensor]:
    """The mean and the variance over these axes, whose extents become 1."""
    work = accumulator(x.dtype)
    count = te.cast(count_of(x.shape, axes), work)
    total = reduce_over(te.sum, x, axes, True, lambda e: te.cast(e, work), f"{name}_sum")
    centre = mapped(lambda e: e / count, total, name=f"{name}_mean")
    squares = mapped(lambda e, m: _square(te.cast(e, work) - m), x, centre, name=f"{name}_squares")
    spread = reduce_over(te.sum, squares, axes, True, name=f"{name}_spread")
    return centre, mapped(lambda e: e / count, spread, name=f"{name}_variance")


def moments_reference(x: Array, axes: Ints) -> tuple[Array, Array]:
    """The mean and the variance by NumPy, in float64."""
    wide = x.astype(np.float64)
    with np.errstate(all="ignore"):
        centre = wide.sum(axis=axes, keepdims=True) / np.prod([x.shape[a] for a in axes])
        return centre, ((wide - centre) ** 2).mean(axis=axes, keepdims=True)


def scaled(e: Expr, scale: Any, bias: Any) -> Expr:
    """e * scale + bias, either of which may be missing, in the type of `e`."""
    e = e if scale is None else e * te.cast(scale, e.dtype)
    return e if bias is None else e + te.cast(bias, e.dtype)


def require_channels(x: Value, *parameters: Value) -> None:
    """Refuse parameters without exactly one element for each channel of N×C×…"""
    if x.ndim < 2:
        raise UserError(f"{x} has no channels", reason="they are its second dimension")
    for p in parameters:
        if p.ndim != 1:
            raise UserError(f"{p} is not one number for each channel")
        require_equal(p.shape[0], x.shape[1], f"{p.name} and the channels of {x.name}")


def per_channel(x: Array, rank: int) -> Array:
    """One number for each channel, to be broadcast against N×C×…"""
    return x.astype(np.float64).reshape(-1, *[1] * (rank - 2))


def _square(e: Expr) -> Expr:
    return e * e
