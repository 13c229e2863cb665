"""Arrays in the memory of a device."""

from __future__ import annotations

import math
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.runtime.arrays import Array

if TYPE_CHECKING:
    from tilewright.runtime.gpu.device import LaunchingDevice


class DeviceArray:
    """A compact array in the memory of a device; the memory goes back with its last holder."""

    def __init__(self, device: LaunchingDevice, shape: Sequence[int], dtype: np.dtype[Any]) -> None:
        self.device, self.shape, self.dtype = device, tuple(shape), np.dtype(dtype)
        self.address = device.take(max(1, self.nbytes))
        weakref.finalize(self, device.give, self.address).atexit = False

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
        """A copy in the memory of the processor."""
        made = np.empty(self.shape, self.dtype)
        if made.nbytes:
            self.device.read(made, self.address)
        return made

    def fill(self, array: Array) -> DeviceArray:
        """Let it hold what `array` holds."""
        if array.nbytes:
            self.device.write(self.address, np.ascontiguousarray(array))
        return self

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        made = self.numpy()
        return made if dtype is None else made.astype(dtype)

    def __repr__(self) -> str:
        return f"<DeviceArray {self.dtype.name}{list(self.shape)} on {self.device.name}>"
