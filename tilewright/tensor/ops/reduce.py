"""Reductions over whole axes of a tensor. `sum`, `max` and `min` are those of tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright.ir import Expr, const
from tilewright.tensor import te
from tilewright.tensor.ops.elementwise import scaled
from tilewright.tensor.ops.extents import axis_of, product

Axes = int | Sequence[int] | None


def sum(x: te.Tensor, axis: Axes = None, keepdims: bool = False, name: str = "sum") -> te.Tensor:
    """The sum over the axes (all of them unless given)."""
    return _reduced(te.sum, x, axis, keepdims, name)


def max(x: te.Tensor, axis: Axes = None, keepdims: bool = False, name: str = "max") -> te.Tensor:
    """The greatest element over the axes."""
    return _reduced(te.max, x, axis, keepdims, name)


def min(x: te.Tensor, axis: Axes = None, keepdims: bool = False, name: str = "min") -> te.Tensor:
    """The least element over the axes."""
    return _reduced(te.min, x, axis, keepdims, name)


def mean(x: te.Tensor, axis: Axes = None, keepdims: bool = False, name: str = "mean") -> te.Tensor:
    """The mean over the axes."""
    total = sum(x, axis, keepdims, name=f"{name}_sum")
    count = te.cast(product([x.shape[a] for a in reduced_axes(x, axis, name)]), x.dtype)
    return scaled(total, count, name)


def reduced_axes(x: te.Tensor, axis: Axes, name: str) -> list[int]:
    """The axes from the front, in order, each once."""
    given = range(x.ndim) if axis is None else (axis,) if isinstance(axis, int) else axis
    return sorted({axis_of(name, a, x.ndim) for a in given})


def _reduced(
    reduction: Callable[..., Any], x: te.Tensor, axis: Axes, keepdims: bool, name: str
) -> te.Tensor:
    axes = reduced_axes(x, axis, name)
    over = {a: te.reduce_axis(x.shape[a], name=f"k{a}") for a in axes}
    kept = [a for a in range(x.ndim) if keepdims or a not in over]

    def element(*i: Expr) -> Any:
        own = dict(zip(kept, i, strict=True))
        value = x[tuple(over.get(a, own.get(a)) for a in range(x.ndim))]
        return reduction(value, axis=list(over.values())) if over else value

    shape = [const(1) if a in over else x.shape[a] for a in kept]
    return te.compute(shape, element, name=name)
