"""Images with their channels last: one block that holds all of them, N×1×spatial×C.

Tensor instructions of GPUs take them so: terms of the sum over channels are contiguous, and pixels
are rows of a product. Costs are in nanoseconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final

from tilewright.graph.ir.types import TensorType, Type
from tilewright.graph.layouts.images import PLAIN, Blocking, channels_of, count, is_view
from tilewright.ir import DType

#: The number of the layout with channels last.
LAST: Final = 1
#: Bytes that are best loaded at once: fewer channels are padded to this.
_VECTOR: Final = 16


@dataclass(frozen=True)
class ChannelsLast(Blocking):
    """Layouts for GPUs: a block is as wide as the image has channels."""

    #: The most bytes that a float is stored in.
    floats: int = 4

    @property
    def is_last(self) -> bool:
        return True

    @cached_property
    def widths(self) -> tuple[int, ...]:
        return ()

    def size_of(self, dtype: DType) -> int:
        """Bytes of an element, as it will be stored."""
        return min(dtype.itemsize, self.floats) if dtype.is_float else dtype.itemsize

    def multiplies(self, dtype: DType) -> bool:
        """Whether tensor instructions multiply elements of a type."""
        gpu = self.target.gpu
        return self.size_of(dtype) <= 2 or (gpu is not None and gpu.multiplies(dtype.name))

    def least(self, dtype: DType) -> int:
        """Channels that fill a vector."""
        return _VECTOR // self.size_of(dtype)

    def blocks(self, type_: Type) -> list[int]:
        channels = channels_of(type_)
        return [] if channels is None else [channels]

    def number(self, layout: int) -> int:
        return 0 if layout == PLAIN else LAST

    def layout(self, type_: Type, number: int) -> int:
        return PLAIN if number == 0 else channels_of(type_) or 1

    # ---- costs ----------------------------------------------------------------------------------

    def convolution(self, products: float, dtype: DType, *, last: bool) -> float:
        """Nanoseconds of a convolution of this many multiply-adds on elements of a type."""
        gpu, size = self.target.gpu, self.size_of(dtype)
        assert gpu is not None
        if not self.multiplies(dtype):
            return 2e9 * products / (gpu.flops * gpu.conv_share)
        share = gpu.conv_share if last else gpu.plain_conv_share
        return 2e9 * products / (gpu.tensor_flops_of(size) * share)

    def copy(self, elements: float, dtype: DType) -> float:
        assert self.target.gpu is not None
        return 2e9 * elements * self.size_of(dtype) / self.target.gpu.bandwidth

    def change(self, type_: TensorType, old: int, new: int) -> float:
        if old == new or (is_view(type_, old) and is_view(type_, new)):
            return 0.0
        assert self.target.gpu is not None
        return self.target.gpu.launch_time + self.copy(count(type_.shape), type_.dtype)
