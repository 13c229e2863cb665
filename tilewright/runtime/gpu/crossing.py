"""What a run copies between the processor and a device: inputs on their way there, results back.

Both are part of the run. Inputs are joined in memory that the device reads by itself, and one copy
goes before all that is launched; another one behind it brings the results. So a run that is
replayed as one graph is that with its copies.
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

#: Arrays begin at multiples of so many bytes.
_GRAIN: Final = 512
_KEY: Final = struct.Struct("3Q").pack
Plain = tuple[Sequence[int], np.dtype[Any]]


class _Joined(NamedTuple):
    """Arrays one behind the other, on the device and in staging memory."""

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
        #: Whether results come back that the caller has no arrays for.
        self.brings_back = brings_back
        #: Bytes of each input that is copied; 0 of those that lie on the device.
        self.given: list[int] = []
        self._device = device
        self._sent: _Joined | None = None
        self._fetched: _Joined | None = None

    # ---- what crosses ---------------------------------------------------------------------------

    def sent(self, inputs: Sequence[Any]) -> list[Any]:
        """Inputs on the device, where those of the processor are when the run begins."""
        given = [a for a in inputs if not isinstance(a, DeviceArray)]
        self.given = [0 if isinstance(a, DeviceArray) else int(a.nbytes) for a in inputs]
        self._sent = self._joined([(a.shape, a.dtype) for a in given])
        if self._sent is None:
            return self._device.placed(inputs)
        self.take(given)
        there = iter(self._sent.there)
        return [a if isinstance(a, DeviceArray) else next(there) for a in inputs]

    def take(self, arrays: Sequence[Array]) -> None:
        """Let the run copy what these arrays hold now."""
        assert self._sent is not None
        for own, array in zip(self._sent.here, arrays, strict=True):
            own[...] = array

    @property
    def sends_all(self) -> bool:
        """Whether all inputs are copied in the run."""
        return self._sent is not None and all(self.given)

    def fetched(self, results: Sequence[Plain]) -> tuple[list[DeviceArray], list[Array]] | None:
        """Arrays for results on the device, and where they are when the run has ended; None where
        they do not come back in the run itself."""
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
        """What tells the copies of this run from those of others."""
        joined = (self._sent, self._fetched)
        return b"".join(_KEY(*each.words) if each else b"-" for each in joined)

    def keep(self) -> None:
        """Let the memory be nobody else's while the run is under way."""
        for each in (self._sent, self._fetched):
            if each is not None:
                each.staged.keep()

    def send(self) -> None:
        if self._sent is not None:
            self._device.send(*self._sent.words)

    def fetch(self) -> None:
        if self._fetched is not None:
            self._device.fetch(*self._fetched.words)
