"""Copies that a run makes between host and device: inputs before the launches, results after.

Inputs are joined in pinned memory, which takes one copy to the device; another one copies the
results back. As the copies belong to the run, a run that is replayed as a graph includes them.
"""

from __future__ import annotations

import itertools
import math
import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from tilewright.runtime.arrays import Array
from tilewright.runtime.gpu.arrays import DeviceArray

if TYPE_CHECKING:
    from tilewright.runtime.gpu.device import LaunchingDevice
    from tilewright.runtime.gpu.staging import Staged

#: Alignment of the joined arrays in bytes.
_GRAIN: Final = 512
_KEY: Final = struct.Struct("3Q").pack
Plain = tuple[Sequence[int], np.dtype[Any]]


class _Joined(NamedTuple):
    """Arrays stored one behind the other, on the device and in staging memory."""

    block: DeviceArray
    staged: Staged
    there: list[DeviceArray]
    here: list[Array]

    @property
    def words(self) -> tuple[int, int, int]:
        return self.block.address, self.staged.address, self.block.nbytes


class Crossing:
    """The copies of one run."""

    def __init__(self, device: LaunchingDevice, *, brings_back: bool) -> None:
        #: Whether results without arrays of the caller's are copied to the host.
        self.brings_back = brings_back
        #: Bytes of each copied input; 0 for those on the device.
        self.given: list[int] = []
        self._device = device
        self._sent: _Joined | None = None
        self._fetched: _Joined | None = None

    # ---- the arrays ------------------------------------------------------------------------------

    def sent(self, inputs: Sequence[Any]) -> list[Any]:
        """The inputs on the device; host arrays are copied there when the run begins."""
        given = [a for a in inputs if not isinstance(a, DeviceArray)]
        self.given = [0 if isinstance(a, DeviceArray) else int(a.nbytes) for a in inputs]
        self._sent = self._joined([(a.shape, a.dtype) for a in given])
        if self._sent is None:
            return self._device.placed(inputs)
        self.take(given)
        there = iter(self._sent.there)
        return [a if isinstance(a, DeviceArray) else next(there) for a in inputs]

    def take(self, arrays: Sequence[Array]) -> None:
        """Copy the contents of these arrays to the staging memory."""
        assert self._sent is not None
        for own, array in zip(self._sent.here, arrays, strict=True):
            own[...] = array

    @property
    def sends_all(self) -> bool:
        """Whether all inputs are copied in the run."""
        return self._sent is not None and all(self.given)

    def fetched(self, results: Sequence[Plain]) -> tuple[list[DeviceArray], list[Array]] | None:
        """Device arrays for results, and the host arrays they are copied to by the end of the run;
        None if they are not copied in the run itself."""
        self._fetched = self._joined(results)
        return None if self._fetched is None else (self._fetched.there, self._fetched.here)

    def _joined(self, arrays: Sequence[Plain]) -> _Joined | None:
        sizes = [math.prod(shape) * dtype.itemsize for shape, dtype in arrays]
        *starts, size = itertools.accumulate((-(-n // _GRAIN) * _GRAIN for n in sizes), initial=0)
        staged = self._device.staging.take(size) if size else None
        if staged is None:
            return None
        block = DeviceArray(self._device, (size,), np.dtype(np.uint8))
        places = list(zip(arrays, starts, strict=True))
        there = [block.part(start, *plain) for plain, start in places]
        here = [np.ndarray(*plain, staged.memory, start) for plain, start in places]
        return _Joined(block, staged, there, here)

    # ---- the run --------------------------------------------------------------------------------

    @property
    def key(self) -> bytes:
        """Identifies the copies of this run."""
        joined = (self._sent, self._fetched)
        return b"".join(_KEY(*each.words) if each else b"-" for each in joined)

    def keep(self) -> None:
        """Reserve the staging memory until the device has been waited for."""
        for each in (self._sent, self._fetched):
            if each is not None:
                each.staged.keep()

    def send(self) -> None:
        if self._sent is not None:
            self._device.send(*self._sent.words)

    def fetch(self) -> None:
        if self._fetched is not None:
            self._device.fetch(*self._fetched.words)
