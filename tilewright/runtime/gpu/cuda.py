"""NVIDIA GPUs: memory, modules, launches and timing through the driver, by ctypes."""

from __future__ import annotations

import ctypes
import math
import weakref
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from typing import Any, Final

import numpy as np

from tilewright.runtime.arrays import Array, address_of
from tilewright.runtime.device import BACK, TO_DEVICE, Copied
from tilewright.runtime.gpu.calls import Calls, OutOfDeviceMemoryError
from tilewright.runtime.gpu.capture import Capture
from tilewright.runtime.gpu.crossing import Crossing
from tilewright.runtime.gpu.device import LaunchingDevice
from tilewright.runtime.gpu.events import Gate, milliseconds, new_event, pinned
from tilewright.runtime.gpu.launcher import MOST_KERNELS, Launched
from tilewright.runtime.gpu.modules import loaded_module
from tilewright.runtime.gpu.ordering import Touched
from tilewright.runtime.gpu.replays import NEVER, Replayed
from tilewright.runtime.scratch import ERROR_WORDS
from tilewright.support import libcuda
from tilewright.support.errors import UserError
from tilewright.support.interrupts import Postponed
from tilewright.support.libcuda import CudaError, let_go
from tilewright.support.timing import Timing

_MOST_DYNAMIC_SHARED: Final = 8
#: Shared memory that the driver reserves per block, and the most blocks per multiprocessor for
#: which a kernel is spread evenly.
_OWN_SHARED: Final = 1024
_MOST_SPREAD: Final = 2
#: DLPack's numbers for the default stream, and for "no synchronization".
_DEFAULT_STREAM, _UNORDERED = 1, -1
#: Bytes of the counter of blocks that wait for each other.
_COUNTER: Final = 4
#: Shared memory per block that needs no attribute of the function.
_PLAIN_SHARED: Final = 48 << 10


class _NotCapturableError(Exception):
    """A run waits for the device midway, which a graph cannot."""


class Cuda(LaunchingDevice):
    """One NVIDIA GPU."""

    dlpack_type = 2

    def __init__(self, ordinal: int) -> None:
        super().__init__()
        self.name = f"cuda:{ordinal}"
        self._call = Calls(self.name, self.launched)
        self._context = ctypes.c_void_p()
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(self._context), ordinal)
        self._enter()
        self._stream = ctypes.c_void_p()
        self._call("cuStreamCreate", ctypes.byref(self._stream), 1)
        #: The graph that launches are added to, if any.
        self._capture: Capture | None = None
        #: Whether independent launches of a graph may run in parallel.
        self.side_by_side = True
        self._counts = 0
        #: The numbers of kernels that have been launched one by one.
        self._warm: set[int] = set()
        #: Modules to be unloaded.
        self._unused: list[Any] = []
        self._gate = Gate(self._call)
        self._records = pinned(MOST_KERNELS * ERROR_WORDS * 8, self._call)

    def _enter(self) -> None:
        self._call("cuCtxSetCurrent", self._context)

    def renew(self) -> None:
        super().renew()
        # The parent's context is unusable here; the first call reports that.
        self._capture = None

    # ---- memory ---------------------------------------------------------------------------------

    def crossing(self, inputs: Sequence[Any]) -> Crossing:
        # Pinned memory is not inherited by forked children: refuse before they write to it.
        self._enter()
        return super().crossing(inputs)

    def take(self, size: int) -> int:
        with self.lock:
            self._require_no_capture()
            return super().take(size)

    def allocate(self, size: int) -> int:
        self._enter()
        address = ctypes.c_uint64()
        args = ctypes.byref(address), ctypes.c_size_t(size)
        self._call("cuMemAlloc_v2", *args, needed=f"{size} bytes")
        return address.value

    def release(self, address: int) -> None:
        self._enter()
        self._call("cuMemFree_v2", ctypes.c_uint64(address))

    def write(self, address: int, array: Array) -> None:
        to, source = ctypes.c_uint64(address), ctypes.c_void_p(address_of(array))
        with self.lock:
            self.wait()
            self._call("cuMemcpyHtoD_v2", to, source, ctypes.c_size_t(array.nbytes))

    def read(self, array: Array, address: int) -> None:
        to, source = ctypes.c_void_p(address_of(array)), ctypes.c_uint64(address)
        with self.lock:
            self._require_no_capture()
            self.wait()
            self._call("cuMemcpyDtoH_v2", to, source, ctypes.c_size_t(array.nbytes))

    def copy(self, to: int, source: int, size: int) -> None:
        args = ctypes.c_uint64(to), ctypes.c_uint64(source), ctypes.c_size_t(size)
        with self._adding(Touched([(source, source + size)], [(to, to + size)])):
            self._call("cuMemcpyDtoDAsync_v2", *args, self._stream)

    def pinned(self, size: int) -> Array:
        self._enter()
        return pinned(size, self._call)

    def send(self, to: int, source: int, size: int) -> None:
        self._enter()
        args = ctypes.c_uint64(to), ctypes.c_void_p(source), ctypes.c_size_t(size)
        touched = Touched([(source, source + size)], [(to, to + size)])
        with self._adding(touched), self._timed(TO_DEVICE, size):
            self._call("cuMemcpyHtoDAsync_v2", *args, self._stream)

    def fetch(self, source: int, to: int, size: int) -> None:
        args = ctypes.c_void_p(to), ctypes.c_uint64(source), ctypes.c_size_t(size)
        touched = Touched([(source, source + size)], [(to, to + size)])
        with self._adding(touched), self._timed(BACK, size):
            self._call("cuMemcpyDtoHAsync_v2", *args, self._stream)

    @property
    def stream(self) -> int:
        return self._stream.value or 0

    def hand_over(self, stream: int | None) -> None:
        if stream == _UNORDERED:
            return
        with self.lock:
            event = new_event()
            self._call("cuEventRecord", event, self._stream)
            self._call("cuStreamWaitEvent", ctypes.c_void_p(stream or _DEFAULT_STREAM), event, 0)
            self._call("cuEventDestroy_v2", event)

    def store(self, place: int, data: bytes) -> None:
        # The value is part of the call, so that it can be captured.
        one = ctypes.c_size_t(1)
        with self._adding(Touched(writes=[(place, place + len(data))])):
            for k, byte in enumerate(data):
                self._call("cuMemsetD8Async", ctypes.c_uint64(place + k), byte, one, self._stream)

    def wait(self) -> None:
        with self.lock:
            self._enter()
            self._call("cuStreamSynchronize", self._stream)
            self.launched.clear()
            super().wait()

    # ---- code -----------------------------------------------------------------------------------

    def make(self, entry: str, forms: Sequence[bytes], shared: int) -> Any:
        self._enter()
        module, function = loaded_module(entry, forms, self.name, self._call), ctypes.c_void_p()
        self._call("cuModuleGetFunction", ctypes.byref(function), module, entry.encode())
        most = max(shared, self._shared_for(1))
        if most > _PLAIN_SHARED:
            self._call("cuFuncSetAttribute", function, _MOST_DYNAMIC_SHARED, most)
        return module, function

    def unmake(self, kernel: Launched) -> None:
        with self.lock:
            self._unused.append(kernel.handle[0])
            self._warm.discard(kernel.number)
            if not self.is_capturing:
                self._unload()

    def _unload(self) -> None:
        """Unload unused code, after all launches have ended."""
        if self._unused:
            let_go("cuCtxSetCurrent", self._context)
            let_go("cuStreamSynchronize", self._stream)
        while self._unused:
            let_go("cuModuleUnload", self._unused.pop())

    def start(
        self, kernel: Launched, blocks: Sequence[int], args: Sequence[int], touched: Touched
    ) -> None:
        self._enter()
        own = [address_of(self._records) + kernel.number * ERROR_WORDS * 8]
        if kernel.is_cooperative:
            own.insert(0, self._counter())
            touched = touched.writing((own[0], own[0] + _COUNTER))
        words = (ctypes.c_uint64 * (len(args) + len(own)))(*args, *own)
        base = ctypes.addressof(words)
        places = (ctypes.c_void_p * len(words))(*(base + 8 * k for k in range(len(words))))
        shared = self._spreading(blocks) if kernel.waits else 0
        shape = (*blocks, *kernel.threads, max(kernel.shared, shared))
        with self._adding(touched, early=kernel.waits), self._timing(kernel):
            if kernel.is_cooperative:
                self._start_together(kernel, shape, places)
            else:
                self._call("cuLaunchKernel", kernel.handle[1], *shape, self._stream, places, None)

    def _timed(self, way: str, size: int) -> AbstractContextManager[None]:
        """Context that times a copy."""
        if not self.waits:
            return nullcontext()
        return self._gate.timed(self._stream, self._times, Copied(way, size))

    def _timing(self, kernel: Launched) -> AbstractContextManager[None]:
        """Context that times a launch. A kernel's first launch may wait for the device: no gate."""
        if not self.waits:
            return nullcontext()
        is_first = kernel.number not in self._warm
        self._warm.add(kernel.number)
        return nullcontext() if is_first else self._gate.timed(self._stream, self._times)

    def _spreading(self, blocks: Sequence[int]) -> int:
        """Shared memory per block that limits multiprocessors to an even share of the blocks.

        Where a kernel starts while another runs, free multiprocessors would otherwise take many
        blocks, and busy ones none.
        """
        each = -(-math.prod(blocks) // self._multiprocessors)
        return self._shared_for(each) if each <= _MOST_SPREAD else 0

    def _shared_for(self, blocks: int) -> int:
        """The least shared memory per block that lets this many blocks on a multiprocessor, and not
        one more."""
        return self._shared_in_all // (blocks + 1) - _OWN_SHARED + 1

    @cached_property
    def _multiprocessors(self) -> int:
        return libcuda.attribute(libcuda.MULTIPROCESSORS)

    @cached_property
    def _shared_in_all(self) -> int:
        return libcuda.attribute(libcuda.SHARED_IN_ALL)

    def _start_together(self, kernel: Launched, shape: Sequence[int], places: Any) -> None:
        """Launch a kernel whose blocks wait for each other (cooperative)."""
        try:
            self._call("cuLaunchCooperativeKernel", kernel.handle[1], *shape, self._stream, places)
        except CudaError as error:
            if error.status != libcuda.TOO_MANY_BLOCKS:
                raise
            raise UserError(
                f"{kernel.entry} cannot be launched on {self.name}",
                reason=f"its {shape[0]} blocks wait for each other, and have no room at once",
                remedy='compile with disabled_passes={"merge_kernels"}',
            ) from None

    def _counter(self) -> int:
        """The counter of blocks that wait for each other. All launches share it, so that two such
        launches run one after the other, and each has room for all of its blocks."""
        if not self._counts:
            self._counts = self.allocate(_COUNTER)
            self.write(self._counts, np.zeros(_COUNTER, np.uint8))
        return self._counts

    # ---- graphs of launches ---------------------------------------------------------------------

    def entered(self, entry: Callable[[Any], int], name: str) -> Callable[..., int]:
        return Replayed(self, entry, name)

    def captured(
        self, entry: Callable[[Any], int], words: Any, crossing: Crossing | None = None
    ) -> Any:
        """The graph of a run's copies and launches; `NEVER` if it cannot be captured."""
        return self._captured(lambda: self.enter(entry, words, crossing))

    def together(self, run: Callable[[], object]) -> Callable[[], object]:
        """The launches of several runs as one graph; they must have run before."""

        def whole() -> int:
            run()
            return 0

        with self.lock:
            graph = self._captured(whole)
        if graph is NEVER:
            return run

        def replayed() -> None:
            with self.lock:
                self.replay(graph)

        # Also keeps `run` alive, whose code and memory the graph uses.
        weakref.finalize(replayed, _destroy, graph, run).atexit = False
        return replayed

    def _captured(self, run: Callable[[], int]) -> Any:
        # Ctrl-C must not leave the stream in the middle of a capture.
        with Postponed():
            self._enter()
            self._capture = capture = Capture(self._stream, self._call)
            try:
                code = run()
                capture.join()
            except _NotCapturableError:
                code = 1
            finally:
                self._capture = None
                graph = capture.end()
            try:
                return NEVER if code else self.with_room(lambda: self._instantiated(graph))
            except OutOfDeviceMemoryError:
                return NEVER  # launches one by one take no memory of their own
            finally:
                let_go("cuGraphDestroy", graph)
                self._unload()

    def _instantiated(self, graph: ctypes.c_void_p) -> ctypes.c_void_p:
        made = ctypes.c_void_p()
        self._call("cuGraphInstantiateWithFlags", ctypes.byref(made), graph, ctypes.c_uint64(0))
        return made

    def replay(self, graph: ctypes.c_void_p) -> None:
        """Launch a graph."""
        self._enter()
        self._call("cuGraphLaunch", graph, self._stream)

    @property
    def is_capturing(self) -> bool:
        """Whether launches are added to a graph of a caller's."""
        return self._capture is not None

    def fence(self) -> None:
        """Let later runs in a graph wait for earlier ones, whatever memory they touch."""
        if self._capture is not None:
            self._capture.fence()

    def _adding(self, touched: Touched, *, early: bool = False) -> AbstractContextManager[None]:
        """Context for a launch, which adds it to the graph."""
        if self._capture is None or not self.side_by_side:
            return nullcontext()
        return self._capture.adding(touched, early=early)

    def _require_no_capture(self) -> None:
        if self.is_capturing:
            raise _NotCapturableError

    def errors(self) -> Array:
        self.wait()
        return self._records.view(np.int64).reshape(MOST_KERNELS, ERROR_WORDS)

    def time(
        self, run: Callable[[], object], repeat: int, min_repeat_ms: float, warmup: int
    ) -> Timing:
        self._enter()
        for _ in range(max(1, warmup)):
            run()
        once = max(1e-3, self._elapsed(run, 1))
        count = max(1, round(min_repeat_ms / once))
        samples = (self._elapsed(run, count) / count / 1e3 for _ in range(repeat))
        return Timing(tuple(samples), count)

    def _elapsed(self, run: Callable[[], object], count: int) -> float:
        """Milliseconds from before the first to after the last of `count` runs."""
        with self.lock:
            start, end = new_event(), new_event()
            self._call("cuEventRecord", start, self._stream)
            for _ in range(count):
                run()
            self._call("cuEventRecord", end, self._stream)
            return milliseconds(start, end)


def _destroy(graph: ctypes.c_void_p, _run: object) -> None:
    let_go("cuGraphExecDestroy", graph)


#: The first GPU, as selected by `CUDA_VISIBLE_DEVICES`.
DEVICE: Final = Cuda(0)
