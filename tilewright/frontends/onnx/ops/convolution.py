"""Convolutions."""

from __future__ import annotations

from tilewright.frontends.common.padding import simplified, split_padding
from tilewright.frontends.onnx.node import Node
from tilewright.frontends.onnx.table import converts
from tilewright.frontends.onnx.windows import kernel_of_weight, read_window
from tilewright.graph import Dim, Value
from tilewright.ir import as_expr, maximum
from tilewright.support.errors import UserError


@converts("Conv")
def conv(n: Node) -> Value:
    return convolved(n, n[0], n[1], n.get(2))


def convolved(n: Node, x: Value, weight: Value, bias: Value | None = None) -> Value:
    """The convolution that the attributes of a node describe."""
    window = read_window(n, x, kernel_of_weight(n, weight))
    return n.builder.conv(
        x,
        weight,
        bias,
        strides=window.strides,
        pads=window.pads,
        dilations=window.dilations,
        groups=n.integer("group", 1),
    )


@converts("ConvTranspose")
def conv_transpose(n: Node) -> Value:
    x, weight = n[0], n[1]
    window = read_window(n, x, kernel_of_weight(n, weight))
    rank = x.ndim - 2
    extra = n.integers("output_padding", None) or [0] * rank
    reached: list[Dim] = [
        (e - 1) * s + (as_expr(k) - 1) * d + 1 + o
        for e, k, s, d, o in zip(x.shape[2:], *window[:3], extra, strict=True)
    ]
    pads, cut = window.pads, _wanted(n, x, window.strides)
    if cut is not None:
        missing = [w - r for r, w in zip(reached, cut, strict=True)]
        # Elements that no window reaches are zero, and come last.
        extra = [e + at_least(m, 0) for e, m in zip(extra, missing, strict=True)]
        totals = [at_least(-m, 0) for m in missing]
        mode = n.text("auto_pad", "NOTSET")
        # Without a mode the odd element is cut off in front.
        pads = split_padding(totals, odd_first=mode in ("NOTSET", "SAME_LOWER"))
    return n.builder.conv_transpose(
        x,
        weight,
        n.get(2),
        strides=window.strides,
        pads=pads,
        dilations=window.dilations,
        groups=n.integer("group", 1),
        output_pads=extra,
    )


def at_least(dim: Dim, least: int) -> Dim:
    """A size, but not less than `least`."""
    return simplified(maximum(as_expr(dim), least))


def _wanted(n: Node, x: Value, strides: tuple[int, ...]) -> list[Dim] | None:
    """The spatial extents of the result, where the model gives them instead of the padding."""
    given = n.integers("output_shape", None)
    if given is not None:
        if len(given) == x.ndim:
            given = given[2:]
        if len(given) != x.ndim - 2:
            raise UserError(f"the output_shape is {given} for {x}")
        return given
    if not n.text("auto_pad", "NOTSET").startswith("SAME"):
        return None
    return [e * s for e, s in zip(x.shape[2:], strides, strict=True)]
