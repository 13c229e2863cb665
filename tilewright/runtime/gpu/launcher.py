"""The functions by which host code reaches a device: launches, and moves of memory.

The first argument of each call is the number of a `Launcher`, which takes the place of the thread
pool in `env`. A kernel's image has its launch parameters (`runtime.gpu.image`).
"""

from __future__ import annotations

import ctypes
import itertools
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from tilewright.runtime.gpu.image import KernelImage
from tilewright.runtime.gpu.ordering import EVERYTHING, Touched
from tilewright.support.interrupts import Postponed

if TYPE_CHECKING:
    from tilewright.runtime.gpu.device import LaunchingDevice

#: The first words of a launch: the code's address and size, blocks along three axes, and the number
#: of arguments. The arguments follow, then the sizes of the buffers among them, which come first.
_FIXED: Final = 6
#: Most kernels whose failures can be told apart in one run.
MOST_KERNELS: Final = 4096


class Launched(NamedTuple):
    """A kernel loaded on a device."""

    #: The index of its error record.
    number: int
    entry: str
    threads: tuple[int, int, int]
    shared: int
    messages: tuple[str, ...]
    handle: Any
    #: How it accesses each of its buffers: `r`, `w` or `rw`; None if unknown.
    access: tuple[str, ...] | None = None
    #: Whether its blocks wait for each other, so that all must be resident at once.
    is_cooperative: bool = False
    #: Whether it waits for preceding launches itself, so that it may start before they end.
    waits: bool = False


class Launcher:
    """Launches kernels for one piece of loaded code; keeps the loaded kernels."""

    num_threads = 1

    def __init__(self, device: LaunchingDevice) -> None:
        #: Passed to the code in place of the address of a thread pool.
        self.address = next(_NUMBERS)
        self._launching = _Launching(device)
        _LAUNCHING[self.address] = self._launching
        weakref.finalize(self, _forget, self.address).atexit = False


class _Launching:
    """A device, and the kernels of one piece of loaded code by their addresses."""

    def __init__(self, device: LaunchingDevice) -> None:
        self.device = device
        self._kernels: dict[int, Launched] = {}

    def launch(self, words: int) -> None:
        """Launch a kernel as requested by host code."""
        start, size, *rest = (ctypes.c_uint64 * _FIXED).from_address(words)
        blocks, count = rest[:3], rest[3]
        if not all(blocks):
            return
        kernel = self._kernels.get(start) or self._loaded(start, size)
        args = list((ctypes.c_uint64 * count).from_address(words + 8 * _FIXED))
        touched = _touched(kernel, args, words + 8 * (_FIXED + count))
        self.device.start(kernel, blocks, args, touched)
        if self.device.waits:
            self.device.wait()

    def _loaded(self, start: int, size: int) -> Launched:
        image = KernelImage.read(ctypes.string_at(start, size))
        said = image.said
        device = self.device
        number = next(k for k in range(MOST_KERNELS) if k not in device.kernels)
        made = Launched(
            number,
            said["entry"],
            tuple(said["threads"]),
            said["shared"],
            tuple(said["messages"]),
            device.with_room(lambda: device.make(said["entry"], image.forms, said["shared"])),
            None if (access := said.get("access")) is None else tuple(access),
            said.get("cooperative", False),
            said.get("waits", False),
        )
        self._kernels[start] = device.kernels[number] = made
        device.numbered = max(device.numbered, number + 1)
        return made

    def unload(self) -> None:
        # Ctrl-C halfway would leak the rest of the kernels.
        with Postponed():
            for kernel in self._kernels.values():
                del self.device.kernels[kernel.number]
                self.device.unmake(kernel)


def _touched(kernel: Launched, args: list[int], sizes: int) -> Touched:
    """The memory that a launch touches; `sizes` is the address of its buffers' sizes."""
    if kernel.access is None:
        return EVERYTHING
    count = len(kernel.access)
    return Touched.of(kernel.access, args[:count], (ctypes.c_uint64 * count).from_address(sizes))


def _forget(number: int) -> None:
    _LAUNCHING.pop(number).unload()


# ---- callbacks of host code ---------------------------------------------------------------------

_LAUNCHING: Final[dict[int, _Launching]] = {}
_NUMBERS: Final = itertools.count(1)


def _launch(launching: _Launching, words: int) -> int:
    launching.launch(words)
    return 0


def _take(launching: _Launching, size: int) -> int:
    return launching.device.take(size)


def _grow(launching: _Launching, held: int, size: int) -> int:
    return launching.device.grow(held, size)


def _free(launching: _Launching, held: int) -> int:
    if held:
        launching.device.give(held)
    return 0


def _copy(launching: _Launching, to: int, source: int, size: int) -> int:
    if size:
        launching.device.copy(to, source, size)
    return 0


def _fetch(launching: _Launching, to: int, source: int, size: int) -> int:
    if size:
        array = np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(to))
        launching.device.read(array, source)
    return 0


def _store(launching: _Launching, place: int, bits: int, size: int) -> int:
    launching.device.store(place, bits.to_bytes(8, "little")[:size])
    return 0


def _callback(call: Callable[..., int], words: int, *, gives_address: bool = False) -> Any:
    """A callback for host code. Exceptions are kept, since they cannot cross that code.

    Ctrl-C only raises where it is delivered (`LaunchingDevice.enter`).
    """

    def run(number: int, *args: int) -> int:
        launching = _LAUNCHING[number]
        try:
            launching.device.deliver_interrupts()
            return call(launching, *args)
        except BaseException as error:
            failed = launching.device.fail(error)
            return 0 if gives_address else failed

    result = ctypes.c_uint64 if gives_address else ctypes.c_int32
    return ctypes.CFUNCTYPE(result, *[ctypes.c_uint64] * (words + 1))(run)


_CALLBACKS: Final = {
    "tw_launch": _callback(_launch, 1),
    "tw_take": _callback(_take, 1, gives_address=True),
    "tw_grow": _callback(_grow, 2, gives_address=True),
    "tw_free": _callback(_free, 1),
    "tw_copy": _callback(_copy, 3),
    "tw_fetch": _callback(_fetch, 3),
    "tw_store": _callback(_store, 3),
}


def symbols() -> dict[str, int]:
    """The addresses of the callbacks, by name."""
    return {name: _address(made) for name, made in _CALLBACKS.items()}


def _address(callback: Any) -> int:
    address = ctypes.cast(callback, ctypes.c_void_p).value
    assert address is not None
    return address
