"""Windows that slide over images, as ONNX describes them: kernel, strides, dilations, padding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tilewright.frontends.onnx.node import Node
from tilewright.graph import Dim, TensorType, Value
from tilewright.ir import Const, Expr, as_expr, maximum
from tilewright.support.errors import UserError


class Window(NamedTuple):
    """What the attributes of a node say, one entry per spatial axis; pads are begins, then ends."""

    kernel: tuple[Dim, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[Dim, ...]


def read_window(n: Node, x: Value, kernel: Sequence[Dim]) -> Window:
    """The window of a convolution or a pooling over `x`."""
    rank = x.ndim - 2
    if rank < 1 or len(kernel) != rank:
        raise UserError(f"a window of {len(kernel)} dimensions on {x}")
    strides = _per_axis(n, "strides", rank)
    dilations = _per_axis(n, "dilations", rank)
    if any(v < 1 for v in (*strides, *dilations)):
        raise UserError(f"strides of {list(strides)} and dilations of {list(dilations)}")
    window = Window(tuple(kernel), strides, dilations, ())
    return window._replace(pads=_pads(n, x.shape[2:], window))


def kernel_of_weight(n: Node, weight: Value) -> list[Dim]:
    """The spatial extents of weights, which the attribute may repeat."""
    given = n.integers("kernel_shape", None)
    extents = [dim_number(d) for d in weight.shape[2:]]
    if given is not None and all(isinstance(e, int) for e in extents) and given != extents:
        raise UserError(f"the kernel_shape is {given}", reason=f"the weights are {weight}")
    return extents


def dim_number(dim: Dim) -> Dim:
    """A dimension as a number, if it is one."""
    return int(dim.value) if isinstance(dim, Const) else dim


def _per_axis(n: Node, name: str, rank: int) -> tuple[int, ...]:
    given = n.integers(name, None) or [1] * rank
    if len(given) != rank:
        raise UserError(f"{name} has {len(given)} entries for {rank} spatial axes")
    return tuple(given)


def _pads(n: Node, extents: Sequence[Expr], window: Window) -> tuple[Dim, ...]:
    mode = n.text("auto_pad", "NOTSET") or "NOTSET"
    rank = len(extents)
    if mode in ("SAME_UPPER", "SAME_LOWER"):
        axes = zip(extents, window.kernel, window.strides, window.dilations, strict=True)
        totals = [same_padding(*axis) for axis in axes]
        return split_padding(totals, mode)
    if mode not in ("NOTSET", "VALID"):
        raise UserError(f"auto_pad is {mode!r}")
    pads = (n.integers("pads", None) if mode == "NOTSET" else None) or [0] * (2 * rank)
    if len(pads) != 2 * rank:
        raise UserError(f"{len(pads)} pads are given for {rank} spatial axes")
    return tuple(pads)


def same_padding(extent: Expr, kernel: Dim, stride: int, dilation: int) -> Dim:
    """How much padding makes ceil(extent / stride) windows fit."""
    reach = (as_expr(kernel) - 1) * dilation + 1
    windows = (extent + (stride - 1)) // stride
    total = maximum((windows - 1) * stride + reach - extent, 0)
    # A dimension of a type is simplified, to a number where it is one.
    return dim_number(TensorType("bool", [total]).shape[0])


def split_padding(totals: Sequence[Dim], mode: str) -> tuple[Dim, ...]:
    """Padding for both sides; the odd element goes behind, or with SAME_LOWER in front."""
    small: list[Dim] = [t // 2 for t in totals]
    large: list[Dim] = [t - s for t, s in zip(totals, small, strict=True)]
    return (*large, *small) if mode == "SAME_LOWER" else (*small, *large)
