"""What devices have in common whose memory is their own and whose kernels are launched.

Code of the processor reaches them through a `Launcher`: to launch kernels and to move memory.
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
#: What sizes of memory are rounded up to.
_GRAIN: Final = 512


class LaunchingDevice(Device):
    """A device with memory of its own; see `Device`."""

    is_here = False

    def __init__(self) -> None:
        #: Held by whoever launches or waits: what one thread captures, no other may disturb.
        self.lock = threading.RLock()
        #: Whether each launch is waited for, and none is replayed: so can kernels be timed.
        self.waits = False
        #: The functions that were run since the device was last waited for.
        self.launched: dict[str, None] = {}
        self._interrupts = Postponed()
        #: What is found of launches that are waited for.
        self._times: list[LaunchTime] = []
        #: Kernels that are loaded, by the number of their error record.
        self.kernels: dict[int, Launched] = {}
        #: One more than the highest number that there was.
        self.numbered = 0
        self._failed: BaseException | None = None
        #: Bytes of each piece of memory that is in use, by its address.
        self._held: dict[int, int] = {}
        #: Pieces that nobody uses, by their size.
        self._spare: dict[int, list[int]] = {}
        #: What lets go of memory that is kept for runs to come.
        self._let_go: list[weakref.WeakMethod[Callable[[], None]]] = []
        #: Whether there was no room when it was last looked for.
        self._is_short = False
        #: How often all that was launched was waited for, and memory that is free by that.
        self.waited = 0
        self.staging = Staging(self)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self.renew)

    def renew(self) -> None:
        """In a process that was forked: another thread may have held the lock at that moment."""
        self.lock = threading.RLock()

    # ---- what each device does in its own way ---------------------------------------------------

    @abstractmethod
    def allocate(self, size: int) -> int:
        """The address of so many bytes."""

    @abstractmethod
    def release(self, address: int) -> None:
        """Let memory go."""

    @abstractmethod
    def write(self, address: int, array: Array) -> None:
        """Copy an array of the processor's to the device."""

    @abstractmethod
    def read(self, array: Array, address: int) -> None:
        """Fill an array of the processor's from the device, when all that was launched is done."""

    @abstractmethod
    def copy(self, to: int, source: int, size: int) -> None:
        """Copy bytes within the device."""

    @abstractmethod
    def pinned(self, size: int) -> Array:
        """Bytes of the processor's memory that the device reads and writes by itself."""

    @abstractmethod
    def send(self, to: int, source: int, size: int) -> None:
        """Copy bytes from such memory to the device's, in the order of launches."""

    @abstractmethod
    def fetch(self, source: int, to: int, size: int) -> None:
        """Copy bytes of the device's to such memory, in the order of launches."""

    @abstractmethod
    def store(self, place: int, data: bytes) -> None:
        """Write the bytes of a number, in the order of launches."""

    @property
    def stream(self) -> int:
        """What launches go to, as other libraries name it; 0 where there is no such thing."""
        return 0

    def hand_over(self, stream: int | None) -> None:
        """Let what is launched on another library's stream wait for what is launched here."""

    @abstractmethod
    def make(self, entry: str, forms: Sequence[bytes], shared: int) -> Any:
        """Load the code of a kernel, by the first of its forms that the device takes; gives what
        `start` takes."""

    @abstractmethod
    def unmake(self, kernel: Launched) -> None:
        """Unload the code of a kernel."""

    @abstractmethod
    def start(
        self, kernel: Launched, blocks: Sequence[int], args: Sequence[int], touched: Touched
    ) -> None:
        """Launch a kernel with arguments, each in the low end of a word, and what it touches."""

    @abstractmethod
    def errors(self) -> Array:
        """What kernels have left in their error records, when all that was launched is done."""

    # ---- memory ---------------------------------------------------------------------------------

    def take(self, size: int) -> int:
        """The address of so many bytes: of memory that was let go, or of new memory."""
        size = -(-size // _GRAIN) * _GRAIN
        with self.lock:
            spare = self._spare.get(size)
            address = spare.pop() if spare else self.with_room(lambda: self.allocate(size))
            self._held[address] = size
        return address

    def give(self, address: int) -> None:
        """Let memory go; it is kept for those who ask for as much."""
        self._spare.setdefault(self._held.pop(address), []).append(address)

    def with_room(self, make: Callable[[], _T]) -> _T:
        """What `make` gives, which takes memory; where there is none, what nobody uses is released
        first. What a run that finds none all the same has taken is released by the next one."""
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
        """Release memory that no run uses."""
        for method in list(self._let_go):
            if (let_go := method()) is not None:
                let_go()
        # Arrays may go away meanwhile, and leave pieces of sizes that there were none of.
        for spare in list(self._spare.values()):
            while spare:
                self.release(spare.pop())

    def grow(self, address: int, size: int) -> int:
        """A larger piece of memory that begins with what another one holds, which is let go."""
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
        """An array that lies on the device already, as ours over the same memory."""
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
        """Results on the device where inputs lay there, as arrays of the library of the first."""
        on_device = [v for v in inputs if _is_on_device(v, self.dlpack_type)]
        read = reader_of(on_device[0]) if on_device else DeviceArray.numpy
        return [self._delivered(r, read) for r in results]

    def _delivered(self, result: Any, read: Callable[[Any], Any] | None) -> Any:
        """A result in memory of the caller's as the array that he gave, others as he wants them."""
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
                # Whoever reads ours lets its stream wait for ours.
                read(DeviceArray(self, (1,), np.dtype(np.uint8)))

    def _of_libraries(self, arrays: Sequence[Any]) -> list[Any]:
        """An array of each library whose arrays these are."""
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
        # Whoever finds that a check has failed says so: it must be the one whose run it was.
        has_checks = any(said["messages"] for code in objects for said in kernels_in(code))
        return _Turn(self) if has_checks else nullcontext()

    def enter(
        self, entry: Callable[[Any], int], words: Any, crossing: Crossing | None = None
    ) -> int:
        """Run code of the processor that launches kernels, between the copies of its run."""
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
        """A place in what code of the processor calls that Ctrl-C may end a run at."""
        self._interrupts.deliver()

    @contextmanager
    def one_by_one(self) -> Generator[Sequence[LaunchTime]]:
        """Wait for each launch, with nobody else's between."""
        with self.lock:
            before = self.waits, self._times
            try:
                self.waits, self._times = True, list[LaunchTime]()
                yield self._times
            finally:
                self.waits, self._times = before

    def wait(self) -> None:
        """Wait until all that was launched is done."""
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
        """Keep an error that code of the processor is to stop at."""
        self._failed = self._failed or error
        return 1


class _Turn:
    """Around what only one thread may do with a device at a time."""

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
    """Intermediate buffers in the memory of a device."""

    def __init__(self, device: LaunchingDevice) -> None:
        super().__init__()
        self._device = device
        self._held: DeviceArray | None = None

    def reserve(self, size: int) -> None:
        if size > 0 and (self._held is None or self._held.nbytes < size):
            self._held = None
            self._held = DeviceArray(self._device, (size,), np.dtype(np.uint8))
            self.workspace = self._held.address
