"""Devices: where arrays lie, where code runs, and how both are reached.

Compiled models and kernels ask their device for memory, for copies, for the code that they call and
for the time it takes. The CPU is the first: its memory is that of NumPy's arrays, and its functions
are called where they lie. A kind of target (`target.kinds`) names its device.
"""

from __future__ import annotations

import ctypes
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from tilewright.runtime.arrays import Array, aligned_all, aligned_zeros, result_empty
from tilewright.runtime.jit import LoadedCode
from tilewright.runtime.threads import symbols
from tilewright.support.timing import Timing, measure


class Device(ABC):
    """A place for arrays and code."""

    name: str
    #: How DLPack numbers its memory.
    dlpack_type: int

    # ---- memory and copies ----------------------------------------------------------------------

    @abstractmethod
    def zeros(self, shape: Sequence[int], dtype: np.dtype[Any]) -> Array:
        """Memory for an array of the device's own, such as packed weights.

        Artifacts hold these: what nobody writes to must be nothing else of this process.
        """

    @abstractmethod
    def result(self, shape: Sequence[int], dtype: np.dtype[Any]) -> Array:
        """Memory for an output, which callers are given."""

    @abstractmethod
    def placed(self, arrays: Sequence[Array]) -> list[Array]:
        """Constants in the device's memory, as its code wants them; copied where they are not."""

    # ---- code -----------------------------------------------------------------------------------

    @abstractmethod
    def load(self, objects: Sequence[bytes]) -> LoadedCode:
        """Object files, made callable."""

    @abstractmethod
    def function(self, code: LoadedCode, name: str, result: Any) -> Callable[..., Any]:
        """What launches a function of loaded code; it takes the address of its words."""

    @abstractmethod
    def time(
        self, run: Callable[[], object], repeat: int, min_repeat_ms: float, warmup: int
    ) -> Timing:
        """How long a run takes until its results are there."""


class Cpu(Device):
    """The processor that Python runs on."""

    name, dlpack_type = "cpu", 1

    def zeros(self, shape: Sequence[int], dtype: np.dtype[Any]) -> Array:
        return aligned_zeros(shape, dtype)

    def result(self, shape: Sequence[int], dtype: np.dtype[Any]) -> Array:
        return result_empty(shape, dtype)

    def placed(self, arrays: Sequence[Array]) -> list[Array]:
        return aligned_all(arrays)

    def load(self, objects: Sequence[bytes]) -> LoadedCode:
        return LoadedCode(objects, symbols())

    def function(self, code: LoadedCode, name: str, result: Any) -> Callable[..., Any]:
        return ctypes.CFUNCTYPE(result, ctypes.c_void_p)(code.address(name))

    def time(
        self, run: Callable[[], object], repeat: int, min_repeat_ms: float, warmup: int
    ) -> Timing:
        return measure(run, repeat, min_repeat_ms, warmup)


CPU: Final = Cpu()
