"""Windows that slide over images, as Caffe describes them: kernel, stride, padding, dilation."""

from __future__ import annotations

from tilewright.frontends.caffe.prototxt import Message
from tilewright.frontends.common.images import SymmetricWindow
from tilewright.graph import Value
from tilewright.support.errors import UserError


def read_window(param: Message, x: Value, *, kernel: list[int] | None = None) -> SymmetricWindow:
    """The window of a convolution or a pooling over `x`."""
    rank = x.ndim - 2
    if rank < 1:
        raise UserError(f"{x} is no image")
    return SymmetricWindow(
        kernel or _each(param, "kernel_size", "kernel", rank, None),
        _each(param, "stride", "stride", rank, 1),
        _each(param, "dilation", "dilation", rank, 1),
        _each(param, "pad", "pad", rank, 0),
    ).checked()


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
