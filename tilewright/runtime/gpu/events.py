"""Timing with the driver's events."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Final

import numpy as np

from tilewright.runtime.arrays import Array, address_of
from tilewright.runtime.device import Copied, LaunchTime
from tilewright.support.libcuda import call

#: CU_STREAM_WAIT_VALUE_GEQ.
_AT_LEAST: Final = 0


def new_event() -> ctypes.c_void_p:
    event = ctypes.c_void_p()
    call("cuEventCreate", ctypes.byref(event), 0)
    return event


def milliseconds(start: ctypes.c_void_p, end: ctypes.c_void_p) -> float:
    """The time between two events, which are destroyed."""
    call("cuEventSynchronize", end)
    took = ctypes.c_float()
    call("cuEventElapsedTime", ctypes.byref(took), start, end)
    for event in (start, end):
        call("cuEventDestroy_v2", event)
    return took.value


class Gate:
    """A flag that holds a stream up until it is set."""

    def __init__(self, ask: Callable[..., None]) -> None:
        self._word = pinned(4, ask).view(np.uint32)

    @contextmanager
    def timed(
        self, stream: ctypes.c_void_p, times: list[LaunchTime], copied: Copied | None = None
    ) -> Generator[None]:
        """Time what is launched in the block. The stream only proceeds once all of it is queued, so
        that launch overhead does not count."""
        at, (start, end) = time.monotonic_ns(), (new_event(), new_event())
        self._word[0] = 0
        call(
            "cuStreamWaitValue32_v2", stream, ctypes.c_uint64(address_of(self._word)), 1, _AT_LEAST
        )
        try:
            call("cuEventRecord", start, stream)
            yield
            call("cuEventRecord", end, stream)
        finally:
            self._word[0] = 1
        times.append(LaunchTime(at, round(1e6 * milliseconds(start, end)), copied))


def pinned(size: int, ask: Callable[..., None]) -> Array:
    """Pinned host memory, zeroed, which kernels can access; `ask` calls the driver."""
    address = ctypes.c_void_p()
    ask(
        "cuMemHostAlloc",
        ctypes.byref(address),
        ctypes.c_size_t(size),
        3,
        needed=f"{size} bytes of the processor's memory that it reaches",
    )
    assert address.value is not None
    held = (ctypes.c_uint8 * size).from_address(address.value)
    array: Array = np.ctypeslib.as_array(held)
    array[:] = 0
    return array
