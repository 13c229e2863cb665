"""The common part of devices with their own memory, on which kernels are launched.

Host code reaches them through a `Launcher`, to launch kernels and to move memory.
"""

from __future__ import annotations

import os
import threading
import weakref
from abc import abstractmethod
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any, Final, TypeVar

import numpy as np

from tilewright.runtime.arrays import Array
from tilewright.runtime.device import Device, LaunchTime
from tilewright.runtime.gpu.arrays import DeviceArray
from tilewright.runtime.gpu.crossing import Crossing
from tilewright.runtime.gpu.dlpack import Borrowed, device_of, follow, is_writeable, reader_of
from tilewright.runtime.gpu.image import kernels_in
from tilewright.runtime.gpu.launcher import Launched, Launcher, symbols
from tilewright.runtime.gpu.ordering import Touched
from tilewright.runtime.gpu.staging import Staging
from tilewright.runtime.jit import LoadedCode
from tilewright.runtime.scratch import ERROR_WORDS, Scratch
from tilewright.support.errors import UserError
from tilewright.support.interrupts import Postponed

_T = TypeVar("_T")
#: Sizes of memory are rounded up to multiples of this.
_GRAIN: Final = 512


class LaunchingDevice(Device):
    """A device with memory of its own; see `Device`."""

    is_here = False

    def __init__(self) -> None:
        #: Held while launching or waiting: no other thread may disturb a capture.
        self.lock = threading.RLock()
        #: Whether each launch is waited for and none is replayed, to time kernels.
        self.waits = False
        #: The functions run since the device was last waited for.
        self.launched: dict[str, None] = {}
        self._interrupts = Postponed()
        #: Times of launches that are waited for.
        self._times: list[LaunchTime] = []
        #: The loaded kernels, by the number of their error record.
        self.kernels: dict[int, Launched] = {}
        #: One more than the highest number so far.
        self.numbered = 0
        self._failed: BaseException | None = None
        #: The size of each allocation in use, by its address.
        self._held: dict[int, int] = {}
        #: Unused allocations, by their size.
        self._spare: dict[int, list[int]] = {}
        #: Methods that release memory kept for later runs.
        self._let_go: list[weakref.WeakMethod[Callable[[], None]]] = []
        #: Whether the last allocation found no memory at first.
        self._is_short = False
        #: How often the device was waited for; staging memory becomes free by that.
        self.waited = 0
        self.staging = Staging(self)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self.renew)

    def renew(self) -> None:
        """In a forked child: another thread may have held the lock during the fork."""
        self.lock = threading.RLock()

    # ---- implemented by each device --------------------------------------------------------------

    @abstractmethod
    def allocate(self, size: int) -> int:
        """The address of `size` new bytes."""

    @abstractmethod
    def release(self, address: int) -> None:
        """Free memory."""

    @abstractmethod
    def write(self, address: int, array: Array) -> None:
        """Copy a host array to the device."""

    @abstractmethod
    def read(self, array: Array, address: int) -> None:
        """Fill a host array from the device, after all launches have ended."""

    @abstractmethod
    def copy(self, to: int, source: int, size: int) -> None:
        """Copy bytes within the device."""

    @abstractmethod
    def pinned(self, size: int) -> Array:
        """Pinned host memory, which the device accesses directly."""

    @abstractmethod
    def send(self, to: int, source: int, size: int) -> None:
        """Copy bytes from pinned memory to the device, in stream order."""

    @abstractmethod
    def fetch(self, source: int, to: int, size: int) -> None:
        """Copy bytes from the device to pinned memory, in stream order."""

    @abstractmethod
    def store(self, place: int, data: bytes) -> None:
        """Write the bytes of a number, in stream order."""

    @property
    def stream(self) -> int:
        """The stream of launches, as other libraries name it; 0 without streams."""
        return 0

    def hand_over(self, stream: int | None) -> None:
        """Let later work on another library's stream wait for the work launched here."""

    @abstractmethod
    def make(self, entry: str, forms: Sequence[bytes], shared: int) -> Any:
        """Load the code of a kernel, by the first of its forms that the device accepts; gives the
        handle for `start`."""

    @abstractmethod
    def unmake(self, kernel: Launched) -> None:
        """Unload the code of a kernel."""

    @abstractmethod
    def start(
        self, kernel: Launched, blocks: Sequence[int], args: Sequence[int], touched: Touched
    ) -> None:
        """Launch a kernel with arguments as words, and the memory it touches."""

    @abstractmethod
    def errors(self) -> Array:
        """The error records of kernels, after all launches have ended."""

    # ---- memory ---------------------------------------------------------------------------------

    def take(self, size: int) -> int:
        """The address of `size` bytes: a spare allocation, or a new one."""
        size = -(-size // _GRAIN) * _GRAIN
        with self.lock:
            spare = self._spare.get(size)
            address = spare.pop() if spare else self.with_room(lambda: self.allocate(size))
            self._held[address] = size
        return address

    def give(self, address: int) -> None:
        """Return an allocation; it is kept for requests of the same size."""
        self._spare.setdefault(self._held.pop(address), []).append(address)

    def with_room(self, make: Callable[[], _T]) -> _T:
        """The result of `make`, which allocates; if memory is short, unused allocations are freed
        first. If it fails all the same, memory that the run still holds is freed by the next
        call."""
        if self._is_short:
            self._is_short = False
            self.trim()
        try:
            return make()
        except MemoryError:
            self.trim()
            self._is_short = True
        made = make()
        self._is_short = False
        return made

    def when_short(self, let_go: Callable[[], None]) -> None:
        with self.lock:
            self._let_go = [m for m in self._let_go if m() is not None]
            self._let_go.append(weakref.WeakMethod(let_go))

    def trim(self) -> None:
        """Free memory that no run uses."""
        for method in list(self._let_go):
            if (let_go := method()) is not None:
                let_go()
        # Arrays may be collected meanwhile, and add allocations of new sizes.
        for spare in list(self._spare.values()):
            while spare:
                self.release(spare.pop())

    def grow(self, address: int, size: int) -> int:
        """A larger allocation with the contents of another one, which is returned."""
        made = self.take(size)
        if address:
            self.copy(made, address, min(self._held[address], size))
            self.give(address)
        return made

    def zeros(self, shape: Sequence[int], dtype: np.dtype[Any]) -> Any:
        return DeviceArray(self, shape, dtype).fill(np.zeros(shape, dtype))

    def result(self, shape: Sequence[int], dtype: np.dtype[Any]) -> Any:
        return DeviceArray(self, shape, dtype)

    def placed(self, arrays: Sequence[Any]) -> list[Any]:
        return [self._placed(a) for a in arrays]

    def _placed(self, array: Any) -> DeviceArray:
        if isinstance(array, DeviceArray):
            return array
        return DeviceArray(self, array.shape, array.dtype).fill(array)

    def address(self, array: Any) -> int:
        return array.address

    def accepted(self, values: Sequence[Any]) -> Sequence[Any]:
        with self.lock:
            return [self._accepted(v) for v in values]

    def _accepted(self, value: Any) -> Any:
        """An array that is on the device already, wrapped without a copy."""
        if not _is_on_device(value, self.dlpack_type) or isinstance(value, DeviceArray):
            return value
        borrowed = Borrowed(value, self.stream)
        return DeviceArray(self, borrowed.shape, borrowed.dtype, borrowed)

    def accepted_outputs(self, values: Sequence[Any]) -> Sequence[Any]:
        with self.lock:
            return [self._accepted_output(v) for v in values]

    def _accepted_output(self, value: Any) -> Any:
        if _is_on_device(value, self.dlpack_type) and not is_writeable(value):
            raise UserError(
                f"outputs cannot be written to a {type(value).__name__}",
                reason="arrays of its library never change",
                remedy="leave it out of the arrays for outputs, and use what run gives",
            )
        return value if value is None else self._accepted(value)

    def given(self, arrays: Sequence[Any]) -> Sequence[Any]:
        return [self._placed(a) for a in arrays]

    def crossing(self, inputs: Sequence[Any]) -> Crossing:
        return Crossing(self, brings_back=not any(isinstance(a, DeviceArray) for a in inputs))

    def delivered(self, results: list[Any], inputs: Sequence[Any]) -> list[Any]:
        """Results, on the device if inputs were, as arrays of the first such input's library."""
        on_device = [v for v in inputs if _is_on_device(v, self.dlpack_type)]
        read = reader_of(on_device[0]) if on_device else DeviceArray.numpy
        return [self._delivered(r, read) for r in results]

    def _delivered(self, result: Any, read: Callable[[Any], Any] | None) -> Any:
        """A result as the caller's own array if it was given, others converted by `read`."""
        if not isinstance(result, DeviceArray):
            return result
        if result.as_given is not result:
            self.lead([result.as_given])
            return result.as_given
        return result if read is None else read(result)

    def follow(self, arrays: Sequence[Any]) -> None:
        with self.lock:
            for value in self._of_libraries(arrays):
                follow(value, self.stream)

    def lead(self, arrays: Sequence[Any]) -> None:
        for value in self._of_libraries(arrays):
            read = reader_of(value)
            if read is None:
                self.wait()
            else:
                # Reading an array of ours lets the library's stream wait for ours.
                read(DeviceArray(self, (1,), np.dtype(np.uint8)))

    def _of_libraries(self, arrays: Sequence[Any]) -> list[Any]:
        """One array of each library among these arrays."""
        others = [a for a in arrays if not isinstance(a, DeviceArray | np.ndarray)]
        kinds: dict[Any, Any] = {type(a): a for a in reversed(others)}
        return list(kinds.values())

    def taken(self, arrays: list[Any]) -> list[Any]:
        return [a.numpy() for a in arrays]

    def copied(self, address: int, shape: Sequence[int], dtype: np.dtype[Any]) -> DeviceArray:
        made = DeviceArray(self, shape, dtype)
        if made.nbytes:
            self.copy(made.address, address, made.nbytes)
        return made

    def free(self, address: int) -> None:
        if address:
            self.give(address)

    def scratch(self) -> Scratch:
        return DeviceScratch(self)

    # ---- code -----------------------------------------------------------------------------------

    def load(self, objects: Sequence[bytes]) -> LoadedCode:
        return LoadedCode(objects, symbols())

    def entered(self, entry: Callable[[Any], int], name: str) -> Callable[..., int]:
        del name
        return partial(self.enter, entry)

    def answering(self, objects: Sequence[bytes]) -> AbstractContextManager[object]:
        # A failed check must be reported by the run that it belongs to.
        has_checks = any(said["messages"] for code in objects for said in kernels_in(code))
        return _Turn(self) if has_checks else nullcontext()

    def enter(
        self, entry: Callable[[Any], int], words: Any, crossing: Crossing | None = None
    ) -> int:
        """Run host code that launches kernels, between the copies of its run."""
        with self.lock, Postponed() as interrupts:
            self._failed, self._interrupts = None, interrupts
            if crossing is not None:
                crossing.send()
            code = entry(words)
            if self._failed is not None:
                failed, self._failed = self._failed, None
                raise failed
            if crossing is not None and not code:
                crossing.fetch()
            return code

    def deliver_interrupts(self) -> None:
        """Called by host code at points where Ctrl-C may end a run."""
        self._interrupts.deliver()

    @contextmanager
    def one_by_one(self) -> Generator[Sequence[LaunchTime]]:
        """Wait for each launch, and let no other thread launch between."""
        with self.lock:
            before = self.waits, self._times
            try:
                self.waits, self._times = True, list[LaunchTime]()
                yield self._times
            finally:
                self.waits, self._times = before

    def wait(self) -> None:
        """Wait until all launches have ended."""
        self.waited += 1

    def workers(self, count: int | None, affinity: Sequence[int] | None) -> Launcher:
        del count, affinity
        return Launcher(self)

    def check(self) -> None:
        with self.lock:
            errors = self.errors()[: self.numbered]
            if not errors[:, 0].any():
                return
            number = int(np.flatnonzero(errors[:, 0])[0])
            code, *values = map(int, errors[number, :ERROR_WORDS])
            errors[:] = 0
            kernel = self.kernels[number]
        reason = kernel.messages[code - 1].format(*values[:4])
        raise UserError(f"{kernel.entry} stopped", reason=reason)

    def fail(self, error: BaseException) -> int:
        """Keep an error that host code stops at."""
        self._failed = self._failed or error
        return 1


class _Turn:
    """A section that only one thread may execute on a device at a time."""

    def __init__(self, device: LaunchingDevice) -> None:
        self._device = device

    def __enter__(self) -> None:
        self._device.lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._device.lock.release()


def _is_on_device(value: Any, kind: int) -> bool:
    if isinstance(value, np.ndarray):
        return False
    return isinstance(value, DeviceArray) or device_of(value) == kind


class DeviceScratch(Scratch):
    """Intermediate buffers in device memory."""

    def __init__(self, device: LaunchingDevice) -> None:
        super().__init__()
        self._device = device
        self._held: DeviceArray | None = None

    def reserve(self, size: int) -> None:
        if size > 0 and (self._held is None or self._held.nbytes < size):
            self._held = None
            self._held = DeviceArray(self._device, (size,), np.dtype(np.uint8))
            self.workspace = self._held.address
