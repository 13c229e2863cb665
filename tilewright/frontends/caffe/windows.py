"""Windows that slide over images, as Caffe describes them: kernel, stride, padding, dilation."""

from __future__ import annotations

from typing import NamedTuple

from tilewright.frontends.caffe.prototxt import Message
from tilewright.graph import Value
from tilewright.support.errors import UserError


class Window(NamedTuple):
    """One entry per spatial axis."""

    kernel: list[int]
    strides: list[int]
    pads: list[int]
    dilations: list[int]

    @property
    def both_pads(self) -> list[int]:
        """All begins, then all ends."""
        return [*self.pads, *self.pads]


def read_window(param: Message, x: Value, *, kernel: list[int] | None = None) -> Window:
    """The window of a convolution or a pooling over `x`."""
    rank = x.ndim - 2
    if rank < 1:
        raise UserError(f"{x} is no image")
    window = Window(
        kernel or _each(param, "kernel_size", "kernel", rank, None),
        _each(param, "stride", "stride", rank, 1),
        _each(param, "pad", "pad", rank, 0),
        _each(param, "dilation", "dilation", rank, 1),
    )
    if min(*window.kernel, *window.strides, *window.dilations) < 1 or min(window.pads) < 0:
        raise UserError(
            f"the window cannot slide: kernel {window.kernel}, stride {window.strides}, "
            f"padding {window.pads}, dilation {window.dilations}"
        )
    return window


def _each(param: Message, name: str, stem: str, rank: int, default: int | None) -> list[int]:
    """One number per axis: for all of them, for each, or as height and width."""
    if f"{stem}_h" in param or f"{stem}_w" in param:
        if rank != 2:
            raise UserError(f"{stem}_h and {stem}_w for {rank} spatial axes")
        return [param.integer(f"{stem}_{axis}", default or 0) for axis in "hw"]
    given = param.integers(name)
    if not given:
        if default is None:
            raise UserError(f"{name} is missing")
        return [default] * rank
    if len(given) not in (1, rank):
        raise UserError(f"{name} has {len(given)} numbers for {rank} spatial axes")
    return given * rank if len(given) == 1 else given
