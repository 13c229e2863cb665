"""Images with channels last, around operators that want them first; windows over them."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.frontends.common import images
from tilewright.frontends.common.images import WindowAttributes
from tilewright.frontends.common.padding import same_padding, split_padding
from tilewright.frontends.tensorflow.node import Node
from tilewright.graph import Dim, Value
from tilewright.ir import Expr
from tilewright.support.errors import UserError


def channels_first(n: Node, x: Value) -> Value:
    """N×C×spatial, whatever the node's format."""
    if x.ndim < 3:
        raise UserError(f"{x} is no image")
    if n.is_channels_first:
        return x
    return images.channels_first(n.builder, x)


def as_before(n: Node, x: Value) -> Value:
    """N×C×spatial in the node's format."""
    if n.is_channels_first:
        return x
    return images.channels_last(n.builder, x)


def spatial(n: Node, given: Sequence[int], rank: int) -> tuple[int, ...]:
    """The entries for spatial axes of a list that has one for every axis."""
    if len(given) != rank + 2:
        raise UserError(f"{list(given)} has no entry for each of {rank + 2} axes")
    found = tuple(given[2:] if n.is_channels_first else given[1:-1])
    if any(v < 1 for v in found):
        raise UserError(f"a window has the entries {list(given)}")
    return found


def window_of(n: Node, extents: Sequence[Expr], kernel: Sequence[Dim]) -> WindowAttributes:
    """The window of a node over an image of these extents."""
    rank = len(kernel)
    if len(extents) != rank:
        raise UserError(f"a window of {rank} dimensions on an image of {len(extents)}")
    strides = spatial(n, n.integers("strides", [1] * (rank + 2)), rank)
    dilations = spatial(n, n.integers("dilations", None) or [1] * (rank + 2), rank)
    padding = n.text("padding")
    if padding == "SAME":
        axes = zip(extents, kernel, strides, dilations, strict=True)
        pads = split_padding([same_padding(*axis) for axis in axes])
    elif padding == "EXPLICIT":
        pads = _explicit(n, rank)
    elif padding == "VALID":
        pads = (0,) * (2 * rank)
    else:
        raise UserError(f"the padding is {padding!r}")
    return WindowAttributes(tuple(kernel), strides, dilations, pads)


def _explicit(n: Node, rank: int) -> tuple[Dim, ...]:
    """(before, after) of every axis, one after another."""
    given = n.integers("explicit_paddings", [])
    if len(given) != 2 * (rank + 2):
        raise UserError(f"the explicit paddings are {given}")
    first = 2 if n.is_channels_first else 1
    pairs = [given[2 * k : 2 * k + 2] for k in range(first, first + rank)]
    return (*(p[0] for p in pairs), *(p[1] for p in pairs))
