"""Windows that slide over images, as ONNX describes them: kernel, strides, dilations, padding."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.frontends.common.images import WindowAttributes
from tilewright.frontends.common.padding import dim_number, same_padding, split_padding
from tilewright.frontends.onnx.node import Node
from tilewright.graph import Dim, Value
from tilewright.ir import Expr
from tilewright.support.errors import UserError


def read_window(n: Node, x: Value, kernel: Sequence[Dim]) -> WindowAttributes:
    """The window of a convolution or a pooling over `x`."""
    rank = x.ndim - 2
    if rank < 1 or len(kernel) != rank:
        raise UserError(f"a window of {len(kernel)} dimensions on {x}")
    strides = _per_axis(n, "strides", rank)
    dilations = _per_axis(n, "dilations", rank)
    if any(v < 1 for v in (*strides, *dilations)):
        raise UserError(f"strides of {list(strides)} and dilations of {list(dilations)}")
    window = WindowAttributes(tuple(kernel), strides, dilations, ())
    return window._replace(pads=_pads(n, x.shape[2:], window))


def clipped_window(window: WindowAttributes, extents: Sequence[Expr]) -> WindowAttributes:
    """The window of a pooling that ONNX Runtime clips to an image smaller than it.

    By ONNX's formula there is no position for such a window. ONNX Runtime divides towards zero and
    so gets one position if less than a stride is missing; there, it reads what exists of the image.
    A kernel without the elements beyond the padded image gives the same.
    """
    rank = len(extents)
    kernel, strides = list(window.kernel), list(window.strides)
    for n, extent in enumerate(map(dim_number, extents)):
        sizes = (extent, window.kernel[n], window.pads[n], window.pads[n + rank])
        known = [size for size in sizes if isinstance(size, int)]
        if len(known) == len(sizes):
            size, taps, before, after = known
            step, whole = window.dilations[n], size + before + after
            missing = (taps - 1) * step + 1 - whole
            if size > 0 and 0 < missing < window.strides[n]:
                kernel[n] = (whole - 1) // step + 1
                # There is one position; a stride over the whole image gives no second.
                strides[n] = whole
    return window._replace(kernel=tuple(kernel), strides=tuple(strides))


def kernel_of_weight(n: Node, weight: Value) -> list[Dim]:
    """The spatial extents of weights, which the attribute may repeat."""
    given = n.integers("kernel_shape", None)
    extents = [dim_number(d) for d in weight.shape[2:]]
    if given is not None and all(isinstance(e, int) for e in extents) and given != extents:
        raise UserError(f"the kernel_shape is {given}", reason=f"the weights are {weight}")
    return extents


def _per_axis(n: Node, name: str, rank: int) -> tuple[int, ...]:
    given = n.integers(name, None) or [1] * rank
    if len(given) != rank:
        raise UserError(f"{name} has {len(given)} entries for {rank} spatial axes")
    return tuple(given)


def _pads(n: Node, extents: Sequence[Expr], window: WindowAttributes) -> tuple[Dim, ...]:
    mode = n.text("auto_pad", "NOTSET") or "NOTSET"
    rank = len(extents)
    if mode in ("SAME_UPPER", "SAME_LOWER"):
        axes = zip(extents, window.kernel, window.strides, window.dilations, strict=True)
        totals = [same_padding(*axis) for axis in axes]
        return split_padding(totals, odd_first=mode == "SAME_LOWER")
    if mode not in ("NOTSET", "VALID"):
        raise UserError(f"auto_pad is {mode!r}")
    pads = (n.integers("pads", None) if mode == "NOTSET" else None) or [0] * (2 * rank)
    if len(pads) != 2 * rank:
        raise UserError(f"{len(pads)} pads are given for {rank} spatial axes")
    return tuple(pads)
