"""Images with channels last, around operators that want them first."""

from __future__ import annotations

from typing import NamedTuple

from tilewright.graph import Builder, Dim, Value


class Window(NamedTuple):
    """Strides, dilations and padding for each spatial axis; pads are begins, then ends."""

    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[Dim, ...]


def channels_first(builder: Builder, x: Value) -> Value:
    """N×spatial×C as N×C×spatial."""
    return builder.transpose(x, axes=[0, x.ndim - 1, *range(1, x.ndim - 1)])


def channels_last(builder: Builder, x: Value) -> Value:
    """N×C×spatial as N×spatial×C."""
    return builder.transpose(x, axes=[0, *range(2, x.ndim), 1])
