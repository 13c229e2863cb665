"""Helpers for reductions over whole axes: the axes, the shape that is left, the loops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright.graph.ir.attributes import Ints
from tilewright.graph.sizes.axes import axes_of
from tilewright.ir import DType, Expr, const
from tilewright.tensor import te

_FLOAT32 = DType.of("float32")
_NARROW = ("float16", "bfloat16")


def sorted_axes(axes: Ints | None, rank: int) -> Ints:
    """Axes counted from the front, in order; all of them for None."""
    return tuple(sorted(axes_of(axes, rank)))


def reduced_shape(shape: Sequence[Any], axes: Ints, keepdims: bool) -> tuple[Any, ...]:
    """The shape without these axes, or with 1 in their place."""
    return tuple(
        const(1) if n in axes else d for n, d in enumerate(shape) if keepdims or n not in axes
    )


def accumulator(dtype: DType) -> DType:
    """The type in which many elements are summed: float32 for narrower floats."""
    return _FLOAT32 if dtype.name in _NARROW else dtype


def reduce_over(
    reduction: Callable[..., Any],
    x: te.Tensor,
    axes: Ints,
    keepdims: bool = True,
    element: Callable[[Expr], Any] | None = None,
    name: str = "reduced",
) -> te.Tensor:
    """`reduction` of `element` of the elements of `x` over these axes."""
    over = {a: te.reduce_axis(x.shape[a], name=f"k{a}") for a in axes}
    kept = [a for a in range(x.ndim) if keepdims or a not in over]

    def result(*i: Expr) -> Any:
        own = dict(zip(kept, i, strict=True))
        value: Any = x[tuple(over.get(a, own.get(a)) for a in range(x.ndim))]
        value = value if element is None else element(value)
        return reduction(value, axis=list(over.values())) if over else value

    return te.compute(reduced_shape(x.shape, axes, keepdims), result, name=name)


def count_of(shape: Sequence[Any], axes: Ints) -> Any:
    """How many elements are reduced to one."""
    result: Any = const(1)
    for axis in axes:
        result = result * shape[axis]
    return result
