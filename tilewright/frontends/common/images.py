"""Windows over images, and images with channels last around operators that want them first."""

from __future__ import annotations

from typing import NamedTuple

from tilewright.graph import Builder, Dim, Value
from tilewright.support.errors import UserError


class WindowAttributes(NamedTuple):
    """The window of a convolution or a pooling, one entry per spatial axis; pads are begins, then
    ends."""

    kernel: tuple[Dim, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[Dim, ...]


class SymmetricWindow(NamedTuple):
    """A window of numbers, with the same padding on both sides of each spatial axis."""

    kernel: list[int]
    strides: list[int]
    dilations: list[int]
    pads: list[int]

    @property
    def both_pads(self) -> list[int]:
        """All begins, then all ends."""
        return [*self.pads, *self.pads]

    def checked(self) -> SymmetricWindow:
        """The window, refused where it cannot slide; a kernel that is not given is empty."""
        if min(*self.kernel, *self.strides, *self.dilations) < 1 or min(self.pads) < 0:
            raise UserError(
                f"the window cannot slide: kernel {self.kernel}, strides {self.strides}, "
                f"dilations {self.dilations}, padding {self.pads}"
            )
        return self


def channels_first(builder: Builder, x: Value) -> Value:
    """N×spatial×C as N×C×spatial."""
    return builder.transpose(x, axes=[0, x.ndim - 1, *range(1, x.ndim - 1)])


def channels_last(builder: Builder, x: Value) -> Value:
    """N×C×spatial as N×spatial×C."""
    return builder.transpose(x, axes=[0, *range(2, x.ndim), 1])
