"""Layers that read several others, and those that only pass on their input."""

from __future__ import annotations

from tilewright.frontends.common.padding import dim_number
from tilewright.frontends.darknet.layer import Layer
from tilewright.frontends.darknet.ops.activation import activated
from tilewright.frontends.darknet.table import converts
from tilewright.graph import Value
from tilewright.support.errors import UserError


@converts("route")
def route(n: Layer) -> Value:
    """Channels of several layers one after the other; with groups, one part of each."""
    parts = n.layers("layers")
    if not parts:
        raise UserError("a route names no layers", remedy="add the option layers")
    groups, group = n.positive("groups", 1), n.integer("group_id", 0)
    if groups > 1:
        parts = [_part(n, x, groups, group) for x in parts]
    return parts[0] if len(parts) == 1 else n.builder.concat(*parts, axis=1)


def _part(n: Layer, x: Value, groups: int, group: int) -> Value:
    channels = dim_number(x.shape[1])
    if not isinstance(channels, int) or channels % groups or not 0 <= group < groups:
        raise UserError(f"group {group} of {groups} of {x}")
    size = channels // groups
    return n.builder.slice(x, starts=[group * size], ends=[(group + 1) * size], axes=[1])


@converts("shortcut")
def shortcut(n: Layer) -> Value:
    n.refuse("weights_type")
    total = n.x
    for other in n.layers("from"):
        total = n.builder.add(total, _fitted(n, other, total))
    alpha, beta = n.real("alpha", 1.0), n.real("beta", 1.0)
    if (alpha, beta) != (1.0, 1.0):
        raise UserError(f"a shortcut with the factors {alpha} and {beta} is not supported")
    return activated(n, total, "linear")


def _fitted(n: Layer, x: Value, like: Value) -> Value:
    """An image with as many channels as another: some are dropped, or zeros are appended."""
    have, want = dim_number(x.shape[1]), dim_number(like.shape[1])
    if not isinstance(have, int) or not isinstance(want, int) or have == want:
        return x
    if have > want:
        return n.builder.slice(x, starts=[0], ends=[want], axes=[1])
    return n.builder.pad(x, before=[0] * 4, after=[0, want - have, 0, 0])


@converts("scale_channels")
def scale_channels(n: Layer) -> Value:
    """Channels of another layer, each times a number from the preceding one."""
    n.refuse("scale_wh")
    (other,) = n.layers("from")
    return activated(n, n.builder.mul(other, n.x), "linear")


@converts("sam")
def sam(n: Layer) -> Value:
    (other,) = n.layers("from")
    return activated(n, n.builder.mul(n.x, other), "linear")


@converts("dropout", "cost")
def passed(n: Layer) -> Value:
    return n.x
