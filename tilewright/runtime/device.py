"""Devices: where arrays lie, where code runs, and how both are reached.

Compiled models and kernels ask their device for memory, for copies, for the code that they call and
for the time it takes. The CPU is the first: its memory is that of NumPy's arrays, and its functions
are called where they lie. A kind of target (`target.kinds`) names its device.
"""

from __future__ import annotations

import ctypes
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

import numpy as np

from tilewright.runtime.arrays import (
    Array,
    address_of,
    aligned_all,
    aligned_zeros,
    result_empty,
)
from tilewright.runtime.jit import LoadedCode
from tilewright.runtime.lists import copied_elements
from tilewright.runtime.scratch import Scratch
from tilewright.runtime.threads import Pool, pool_for, symbols
from tilewright.support.timing import Timing, measure

if TYPE_CHECKING:
    from tilewright.runtime.gpu.crossing import Crossing


class Workers(Protocol):
    """What runs parallel loops; compiled code takes its address."""

    address: int

    @property
    def num_threads(self) -> int:
        """Threads of the processor that take part."""
        ...


#: The ways that copies go.
TO_DEVICE: Final = "to the device"
BACK: Final = "back"


class Copied(NamedTuple):
    """A copy between the processor and a device: the way it went, and how many bytes."""

    way: str
    bytes: int


class LaunchTime(NamedTuple):
    """When a kernel was launched, by the clock of `time.monotonic_ns`, and how long it took."""

    at: int
    nanoseconds: int
    #: What it is in place of a kernel.
    copied: Copied | None = None


class Device(ABC):
    """A place for arrays and code."""

    name: str
    #: How DLPack numbers its memory.
    dlpack_type: int
    #: Whether its memory is that of NumPy's arrays, and its workers threads of this process.
    is_here: bool = True

    # ---- memory and copies ----------------------------------------------------------------------

    @abstractmethod
    def zeros(self, shape: Sequence[int], dtype: np.dtype[Any]) -> Array:
        """Memory for an array of the device's own, such as packed weights.

        Artifacts hold these: bytes that are never written must reveal nothing of this process.
        """

    @abstractmethod
    def result(self, shape: Sequence[int], dtype: np.dtype[Any]) -> Array:
        """Memory for an output, which callers are given."""

    @abstractmethod
    def placed(self, arrays: Sequence[Array]) -> list[Array]:
        """Constants in the device's memory, as its code wants them; copied where they are not."""

    @abstractmethod
    def address(self, array: Array) -> int:
        """Where an array in the device's memory begins."""

    @abstractmethod
    def given(self, arrays: Sequence[Any]) -> Sequence[Any]:
        """Arrays that callers pass, in the device's memory; copied where they are not."""

    def when_short(self, let_go: Callable[[], None]) -> None:
        """Call this method where memory runs short, as long as its object lives: it lets go of what
        is kept for runs to come."""
        del let_go

    def crossing(self, inputs: Sequence[Any]) -> Crossing | None:
        """The copies of a run on such inputs, where these and results lie elsewhere."""
        del inputs
        return None

    def accepted(self, values: Sequence[Any]) -> Sequence[Any]:
        """Inputs of which those that lie on the device are known for that."""
        return values

    def follow(self, arrays: Sequence[Any]) -> None:
        """Let what runs from here on wait for what other libraries still do with these arrays."""
        del arrays

    def lead(self, arrays: Sequence[Any]) -> None:
        """Let what other libraries do with these arrays wait for what runs now."""
        del arrays

    def accepted_outputs(self, values: Sequence[Any]) -> Sequence[Any]:
        """Arrays for outputs of which those that lie on the device are known for that."""
        return values

    def delivered(self, results: list[Any], inputs: Sequence[Any]) -> list[Any]:
        """Results as callers who gave these inputs want them."""
        del inputs
        return results

    @abstractmethod
    def taken(self, arrays: list[Any]) -> list[Any]:
        """Arrays in the memory of the processor."""

    @abstractmethod
    def copied(self, address: int, shape: Sequence[int], dtype: np.dtype[Any]) -> Any:
        """A copy of a result in memory that code took for it."""

    @abstractmethod
    def free(self, address: int) -> None:
        """Give memory back that code took, which may be none."""

    @abstractmethod
    def check(self) -> None:
        """Wait for what was launched, and report a check that failed in it."""

    @abstractmethod
    def scratch(self) -> Scratch:
        """What one call needs for itself."""

    # ---- code -----------------------------------------------------------------------------------

    @abstractmethod
    def workers(self, count: int | None, affinity: Sequence[int] | None) -> Workers:
        """What runs parallel loops: threads of the processor, or the device itself."""

    @abstractmethod
    def entered(self, entry: Callable[[Any], int], name: str) -> Callable[..., int]:
        """How the entry of a function is called: with what the device needs around it, and the
        copies of the run where there are any."""

    def answering(self, objects: Sequence[bytes]) -> AbstractContextManager[object]:
        """What is entered around runs of loaded code and the reading of their results."""
        del objects
        return nullcontext()

    @abstractmethod
    def load(self, objects: Sequence[bytes]) -> LoadedCode:
        """Object files, made callable."""

    def function(self, code: LoadedCode, name: str, result: Any) -> Callable[..., Any]:
        """What calls a function of loaded code; it takes the address of its words."""
        return ctypes.CFUNCTYPE(result, ctypes.c_void_p)(code.address(name))

    def one_by_one(self) -> AbstractContextManager[Sequence[LaunchTime]]:
        """Let each kernel end before the code that called it goes on, for timing them; gives what
        the device itself finds of its launches, as they are made."""
        return nullcontext(())

    def together(self, run: Callable[[], object]) -> Callable[[], object]:
        """The same run as one piece, where a device would wait for each of its parts: so can
        kernels be timed that take less time than it takes to launch them."""
        return run

    @abstractmethod
    def time(
        self, run: Callable[[], object], repeat: int, min_repeat_ms: float, warmup: int
    ) -> Timing:
        """How long a run takes until its results are there."""


class CpuDevice(Device):
    """The processor that Python runs on."""

    name, dlpack_type = "cpu", 1

    def zeros(self, shape: Sequence[int], dtype: np.dtype[Any]) -> Array:
        return aligned_zeros(shape, dtype)

    def result(self, shape: Sequence[int], dtype: np.dtype[Any]) -> Array:
        return result_empty(shape, dtype)

    def placed(self, arrays: Sequence[Array]) -> list[Array]:
        return aligned_all(arrays)

    def address(self, array: Array) -> int:
        return address_of(array)

    def given(self, arrays: Sequence[Any]) -> Sequence[Any]:
        return arrays

    def taken(self, arrays: list[Any]) -> list[Any]:
        return arrays

    def copied(self, address: int, shape: Sequence[int], dtype: np.dtype[Any]) -> Array:
        return copied_elements(address, shape, dtype)

    def free(self, address: int) -> None:
        _libc_free()(address)

    def check(self) -> None:
        """Code of the processor says itself what failed, when it is called."""

    def scratch(self) -> Scratch:
        return Scratch()

    def workers(self, count: int | None, affinity: Sequence[int] | None) -> Pool:
        return pool_for(count, affinity)

    def entered(self, entry: Callable[[Any], int], name: str) -> Callable[..., int]:
        del name
        return entry

    def load(self, objects: Sequence[bytes]) -> LoadedCode:
        return LoadedCode(objects, symbols())

    def time(
        self, run: Callable[[], object], repeat: int, min_repeat_ms: float, warmup: int
    ) -> Timing:
        return measure(run, repeat, min_repeat_ms, warmup)


@cache
def _libc_free() -> Callable[[int], None]:
    free = ctypes.CDLL(None).free
    free.argtypes, free.restype = [ctypes.c_void_p], None
    return free


CPU: Final = CpuDevice()
