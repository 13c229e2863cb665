"""Arrays in the memory of a device."""

from __future__ import annotations

import math
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.runtime.arrays import Array
from tilewright.runtime.gpu.dlpack import Borrowed, capsule_of

if TYPE_CHECKING:
    from tilewright.runtime.gpu.device import LaunchingDevice


class DeviceArray:
    """A compact array in device memory, which is released with its last reference."""

    def __init__(
        self,
        device: LaunchingDevice,
        shape: Sequence[int],
        dtype: np.dtype[Any],
        borrowed: Borrowed | None = None,
    ) -> None:
        self.device, self.shape, self.dtype = device, tuple(shape), np.dtype(dtype)
        self._borrowed = borrowed
        #: The array that this one is a view of.
        self._whole: DeviceArray | None = None
        if borrowed is not None:
            self.address = borrowed.address
            return
        self.address = device.take(max(1, self.nbytes))
        weakref.finalize(self, device.give, self.address).atexit = False

    def part(self, start: int, shape: Sequence[int], dtype: np.dtype[Any]) -> DeviceArray:
        """A view of some of its bytes, which keeps its memory alive."""
        made = DeviceArray.__new__(DeviceArray)
        made.device, made.shape, made.dtype = self.device, tuple(shape), np.dtype(dtype)
        made._borrowed, made._whole = None, self
        made.address = self.address + start
        return made

    @property
    def as_given(self) -> Any:
        """The array of another library whose memory it shares, else itself."""
        return self if self._borrowed is None else self._borrowed.value

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def numpy(self) -> Array:
        """A copy in host memory, after waiting for the device."""
        made = np.empty(self.shape, self.dtype)
        self.copy_to(made)
        return made

    def copy_to(self, array: Array) -> None:
        """Copy it to a host array, after waiting for the device."""
        self.device.check()
        if array.nbytes:
            self.device.read(array, self.address)

    def fill(self, array: Array) -> DeviceArray:
        """Copy the contents of `array` into it."""
        if array.nbytes:
            self.device.write(self.address, np.ascontiguousarray(array))
        return self

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        made = self.numpy()
        return made if dtype is None else made.astype(dtype)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device.dlpack_type, 0

    def __dlpack__(self, *, stream: int | None = None, **_: Any) -> Any:
        self.device.hand_over(stream)
        return capsule_of(self, self.device.dlpack_type)

    def __repr__(self) -> str:
        return f"<DeviceArray {self.dtype.name}{list(self.shape)} on {self.device.name}>"
