"""Pooling over whole images."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.graph.ir import Array, Value
from tilewright.graph.ir.attributes import Ints
from tilewright.graph.ir.op import op
from tilewright.graph.ir.types import TensorType, Type
from tilewright.graph.ops.elementwise.elementwise import require_kind
from tilewright.graph.ops.neural.windows import spatial_rank


def _spatial(x: Value) -> Ints:
    spatial_rank(x.ndim, x.name)
    return tuple(range(2, x.ndim))


def _global_type(x: Value) -> Type:
    require_kind("float", x)
    return TensorType(x.dtype, [*x.shape[:2], *[1] * len(_spatial(x))])


@op
def global_avg_pool(x: Value) -> Type:
    """The mean over all spatial axes, which become 1."""
    return _global_type(x)


@global_avg_pool.reference
def global_avg_pool_reference(x: Array) -> Array:
    return x.astype(np.float64).mean(axis=tuple(range(2, x.ndim)), keepdims=True).astype(x.dtype)


@global_avg_pool.decompose
def global_avg_pool_decompose(b: Any, x: Value) -> Value:
    return b.mean(x, axes=_spatial(x), keepdims=True)


@op
def global_max_pool(x: Value) -> Type:
    """The greatest element over all spatial axes, which become 1."""
    return _global_type(x)


@global_max_pool.reference
def global_max_pool_reference(x: Array) -> Array:
    return x.max(axis=tuple(range(2, x.ndim)), keepdims=True)


@global_max_pool.decompose
def global_max_pool_decompose(b: Any, x: Value) -> Value:
    return b.max(x, axes=_spatial(x), keepdims=True)


@op
def global_lp_pool(x: Value, *, p: int = 2) -> Type:
    """The `p`-norm over all spatial axes, which become 1."""
    return _global_type(x)


@global_lp_pool.reference
def global_lp_pool_reference(x: Array, *, p: int) -> Array:
    powers = np.abs(x.astype(np.float64)) ** p
    return (powers.sum(axis=tuple(range(2, x.ndim)), keepdims=True) ** (1 / p)).astype(x.dtype)


@global_lp_pool.decompose
def global_lp_pool_decompose(b: Any, x: Value, *, p: int) -> Value:
    if p in (1, 2):
        return b.emit("l1" if p == 1 else "l2", x, axes=_spatial(x), keepdims=True)
    total = b.sum(b.pow(b.abs(x), float(p)), axes=_spatial(x), keepdims=True)
    return b.pow(total, 1.0 / p)
