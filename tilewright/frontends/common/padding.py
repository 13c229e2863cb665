"""Padding that is computed from sizes, and dimensions as numbers."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.graph import Dim, simplify_size
from tilewright.ir import Const, Expr, as_expr, maximum


def dim_number(dim: Dim) -> Dim:
    """A dimension as a number, if it is one."""
    return int(dim.value) if isinstance(dim, Const) else dim


def simplified(dim: Dim) -> Dim:
    """A dimension in its shortest form, and as a number if it is one."""
    return dim_number(simplify_size(as_expr(dim)))


def same_padding(extent: Expr, kernel: Dim, stride: int, dilation: int) -> Dim:
    """The padding for which ceil(extent / stride) windows fit."""
    reach = (as_expr(kernel) - 1) * dilation + 1
    windows = (extent + (stride - 1)) // stride
    return simplified(maximum((windows - 1) * stride + reach - extent, 0))


def split_padding(totals: Sequence[Dim], *, odd_first: bool = False) -> tuple[Dim, ...]:
    """Padding for both sides, all begins and then all ends; an odd element goes to the end."""
    small: list[Dim] = [t // 2 for t in totals]
    large: list[Dim] = [t - s for t, s in zip(totals, small, strict=True)]
    return (*large, *small) if odd_first else (*small, *large)
