"""The interface of devices: memory, copies, loading and calling code, timing.

The CPU is the default device: its memory is that of NumPy's arrays, and its functions are called
directly. A kind of target (`target.kinds`) names its device.
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
    """Runs parallel loops; compiled code takes its address."""

    address: int

    @property
    def num_threads(self) -> int:
        """The number of host threads that take part."""
        ...


#: Directions of copies.
TO_DEVICE: Final = "to the device"
BACK: Final = "back"


class Copied(NamedTuple):
    """A copy between host and device: its direction, and its size."""

    way: str
    bytes: int


class LaunchTime(NamedTuple):
    """When a kernel was launched, by `time.monotonic_ns`, and how long it took."""

    at: int
    nanoseconds: int
    #: Set if it is a copy instead of a kernel.
    copied: Copied | None = None


class Device(ABC):
    """A place for arrays and code."""

    name: str
    #: The type of its memory in DLPack.
    dlpack_type: int
    #: Whether its memory is host memory, and its workers are threads of this process.
    is_here: bool = True

    # ---- memory and copies ----------------------------------------------------------------------

    @abstractmethod
    def zeros(self, shape: Sequence[int], dtype: np.dtype[Any]) -> Array:
        """Zeroed memory for an array of the device's own, such as packed weights.

        Artifacts store these: unwritten bytes must not reveal memory of this process.
        """

    @abstractmethod
    def result(self, shape: Sequence[int], dtype: np.dtype[Any]) -> Array:
        """Memory for an output, which is returned to the caller."""

    @abstractmethod
    def placed(self, arrays: Sequence[Array]) -> list[Array]:
        """Constants in the device's memory, aligned for its code; copied where necessary."""

    @abstractmethod
    def address(self, array: Array) -> int:
        """The address of an array in the device's memory."""

    @abstractmethod
    def given(self, arrays: Sequence[Any]) -> Sequence[Any]:
        """Arrays of the caller's in the device's memory; copied where necessary."""

    def when_short(self, let_go: Callable[[], None]) -> None:
        """Register a method, for the lifetime of its object, that releases memory kept for later
        runs; it is called when memory runs short."""
        del let_go

    def crossing(self, inputs: Sequence[Any]) -> Crossing | None:
        """The copies of a run on these inputs, if inputs and results are in another memory."""
        del inputs
        return None

    def accepted(self, values: Sequence[Any]) -> Sequence[Any]:
        """Inputs, with those already on the device wrapped as its arrays."""
        return values

    def follow(self, arrays: Sequence[Any]) -> None:
        """Let later work wait for pending work of other libraries on these arrays."""
        del arrays

    def lead(self, arrays: Sequence[Any]) -> None:
        """Let later work of other libraries on these arrays wait for the work launched so far."""
        del arrays

    def accepted_outputs(self, values: Sequence[Any]) -> Sequence[Any]:
        """Output arrays, with those already on the device wrapped as its arrays."""
        return values

    def delivered(self, results: list[Any], inputs: Sequence[Any]) -> list[Any]:
        """Results in the form for callers who passed these inputs."""
        del inputs
        return results

    @abstractmethod
    def taken(self, arrays: list[Any]) -> list[Any]:
        """Arrays in host memory."""

    @abstractmethod
    def copied(self, address: int, shape: Sequence[int], dtype: np.dtype[Any]) -> Any:
        """A copy of a result in memory that code allocated."""

    @abstractmethod
    def free(self, address: int) -> None:
        """Free memory that code allocated; 0 is allowed."""

    @abstractmethod
    def check(self) -> None:
        """Wait for all launches, and report a check that failed in them."""

    @abstractmethod
    def scratch(self) -> Scratch:
        """Scratch memory for one call."""

    # ---- code -----------------------------------------------------------------------------------

    @abstractmethod
    def workers(self, count: int | None, affinity: Sequence[int] | None) -> Workers:
        """The workers for parallel loops: host threads, or the device itself."""

    @abstractmethod
    def entered(self, entry: Callable[[Any], int], name: str) -> Callable[..., int]:
        """A wrapper that calls the entry of a function with the setup that the device needs, and
        the copies of the run if there are any."""

    def answering(self, objects: Sequence[bytes]) -> AbstractContextManager[object]:
        """A context for runs of loaded code and the reading of their results."""
        del objects
        return nullcontext()

    @abstractmethod
    def load(self, objects: Sequence[bytes]) -> LoadedCode:
        """Loads object files."""

    def function(self, code: LoadedCode, name: str, result: Any) -> Callable[..., Any]:
        """A function of loaded code, which takes the address of its words."""
        return ctypes.CFUNCTYPE(result, ctypes.c_void_p)(code.address(name))

    def one_by_one(self) -> AbstractContextManager[Sequence[LaunchTime]]:
        """Wait for each kernel before the next, to time them; gives the device's own times of its
        launches, as they are made."""
        return nullcontext(())

    def together(self, run: Callable[[], object]) -> Callable[[], object]:
        """`run` as a single launch where the device has that (a CUDA graph), so that kernels can be
        timed that take less time than a launch."""
        return run

    @abstractmethod
    def time(
        self, run: Callable[[], object], repeat: int, min_repeat_ms: float, warmup: int
    ) -> Timing:
        """The time of a run until its results are available."""


class CpuDevice(Device):
    """The host's processor."""

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
        """Nothing to do: host code returns its errors."""

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
