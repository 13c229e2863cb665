"""Pooling over the spatial axes of an image."""

from __future__ import annotations

from typing import Any, Literal

from tilewright.ir import Expr
from tilewright.support.errors import UserError
from tilewright.tensor import te
from tilewright.tensor.ops.elementwise import scaled
from tilewright.tensor.ops.extents import plus
from tilewright.tensor.ops.window import Pair, Window

Layout = Literal["NCHW", "NHWC", "NCHWc"]
_SPATIAL: dict[str, tuple[int, int]] = {"NCHW": (2, 3), "NHWC": (1, 2), "NCHWc": (2, 3)}


def max_pool2d(
    x: te.Tensor,
    kernel: Pair,
    strides: Pair = 1,
    pads: Pair = 0,
    dilations: Pair = 1,
    layout: Layout = "NCHW",
    name: str = "max_pool2d",
) -> te.Tensor:
    """The greatest element in every window; padding never wins."""
    window = Window.of(name, _kernel(kernel), strides, pads, dilations)
    return _pooled(te.max, x, window, _axes(name, layout), name)


def avg_pool2d(
    x: te.Tensor,
    kernel: Pair,
    strides: Pair = 1,
    pads: Pair = 0,
    dilations: Pair = 1,
    layout: Layout = "NCHW",
    count_include_pad: bool = False,
    name: str = "avg_pool2d",
) -> te.Tensor:
    """The mean of every window: of its elements inside the image, or with the padding counted."""
    window, axes = Window.of(name, _kernel(kernel), strides, pads, dilations), _axes(name, layout)
    total = _pooled(te.sum, x, window, axes, f"{name}_sum")
    if count_include_pad or not window.is_padded:
        size = window.kernel[0] * window.kernel[1]
        return scaled(total, size, name)

    def element(*i: Expr) -> Expr:
        height, width = (_count_inside(window, n, i[a], x.shape[a]) for n, a in enumerate(axes))
        return total[i] / (height * width).astype(x.dtype)

    return te.compute(total.shape, element, name=name)


def _pooled(
    reduction: Any, x: te.Tensor, window: Window, axes: tuple[int, int], name: str
) -> te.Tensor:
    reduced = window.axes()
    shape: list[Any] = list(x.shape)
    for axis, places in zip(axes, window.output(name, [x.shape[a] for a in axes]), strict=True):
        shape[axis] = places

    def element(*i: Expr) -> Any:
        index, inside = list(i), list[Expr]()
        for n, axis in enumerate(axes):
            index[axis] = window.index(n, i[axis], reduced[n], padded=False)
            inside += [index[axis] >= 0] if window.before[n] else []
            inside += [index[axis] < x.shape[axis]] if window.after[n] else []
        return reduction(
            x[tuple(index)], axis=reduced, where=te.all_of(*inside) if inside else None
        )

    return te.compute(shape, element, name=name)


def _count_inside(window: Window, n: int, place: Expr, extent: Expr) -> Expr:
    """How many elements of a window lie inside the image along one axis."""
    start = plus(window.index(n, place, 0), -window.before[n])
    step, kernel = window.dilations[n], window.kernel[n]
    # The first element at or after 0, and the first at or after the end, counted in steps.
    first = te.clip(te.floordiv(-start + (step - 1), step), 0, kernel)
    end = te.clip(te.floordiv(extent - start + (step - 1), step), 0, kernel)
    return end - first


def _kernel(kernel: Pair) -> tuple[Any, ...]:
    return (te.const(kernel),) * 2 if isinstance(kernel, int) else tuple(map(te.const, kernel))


def _axes(name: str, layout: str) -> tuple[int, int]:
    if layout not in _SPATIAL:
        raise UserError(f"{name} has no layout {layout!r}", remedy=f"use {', '.join(_SPATIAL)}")
    return _SPATIAL[layout]
