"""Images N×spatial×C, by operators on N×C×spatial; windows over them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright.frontends.common.images import WindowAttributes, channels_first, channels_last
from tilewright.frontends.common.padding import same_padding, split_padding
from tilewright.frontends.tflite.node import Node
from tilewright.graph import Dim, Value
from tilewright.ir import Expr
from tilewright.support.errors import UserError

_SAME = 0


def read_window(
    n: Node, extents: Sequence[Expr], kernel: Sequence[Dim], dilated: bool
) -> WindowAttributes:
    """The window that the options of a node describe, over images of these extents."""
    axes = "dhw"[-len(extents) :]
    strides = tuple(n.option(f"stride_{a}") for a in axes)
    dilations = tuple(n.option(f"dilation_{a}") if dilated else 1 for a in axes)
    if any(v < 1 for v in (*strides, *dilations)):
        raise UserError(f"the strides are {strides}, the dilations {dilations}")
    if n.option("padding") != _SAME:
        return WindowAttributes(tuple(kernel), strides, dilations, (0,) * (2 * len(axes)))
    sizes = zip(extents, kernel, strides, dilations, strict=True)
    pads = split_padding([same_padding(*size) for size in sizes])
    return WindowAttributes(tuple(kernel), strides, dilations, pads)


def on_images(n: Node, x: Value, compute: Callable[[Value], Value]) -> Value:
    """The result of an operator on N×C×spatial for an image N×spatial×C."""
    return channels_last(n.builder, compute(channels_first(n.builder, x)))


def activated(n: Node, x: Value, name: str | None = None) -> Value:
    """Real numbers with the activation that is part of a node."""
    name, b = n.activation if name is None else name, n.builder
    if name == "NONE":
        return x
    if name == "RELU":
        return b.relu(x)
    if name in ("RELU6", "RELU_N1_TO_1"):
        low, high = (0, 6) if name == "RELU6" else (-1, 1)
        return b.clip(x, n.scalar(low, x), n.scalar(high, x))
    if name == "TANH":
        return b.tanh(x)
    raise UserError(f"the activation {name} is not supported")
