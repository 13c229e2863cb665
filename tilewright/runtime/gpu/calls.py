"""Calls of the driver, whose errors become errors of the device or of the kernel at fault."""

from __future__ import annotations

import ctypes
from collections.abc import Collection
from typing import Any

from tilewright.support import libcuda
from tilewright.support.errors import UserError
from tilewright.support.libcuda import CudaError, call


class OutOfDeviceMemoryError(UserError, MemoryError):
    """The device lacks memory for a request."""


class Calls:
    """Calls of the driver for one device; `launched` names the functions launched on it."""

    def __init__(self, device: str, launched: Collection[str]) -> None:
        self._device, self._launched = device, launched
        #: The error of a failed kernel, after which the driver runs nothing more.
        self._fault = ""

    def __call__(self, name: str, *args: Any, needed: str = "") -> None:
        """Call a function. After a kernel has failed, every call reports that failure; an
        out-of-memory error gives what was `needed` and what is available."""
        try:
            call(name, *args)
        except CudaError as error:
            if error.status == libcuda.OUT_OF_MEMORY:
                raise self._out_of_memory(needed or f"bytes for {name}") from None
            if not error.is_of_a_kernel:
                raise
            raise self._failed_kernel(error) from None

    def memory(self) -> tuple[int, int]:
        """Free and total bytes."""
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value, total.value

    def _out_of_memory(self, needed: str) -> OutOfDeviceMemoryError:
        free, total = self.memory()
        return OutOfDeviceMemoryError(
            f"out of memory on {self._device}: {needed} are needed",
            reason=f"{free} of {total} bytes are free",
            remedy="use smaller batches, or free other models and tensors on the device",
        )

    def _failed_kernel(self, error: CudaError) -> CudaError:
        if self._fault:
            what = f"{self._device} runs nothing more in this process"
            return CudaError(what, error.status, self._fault)
        names = ", ".join(self._launched) or "nothing of ours"
        reason = f"{error.reason}; since it last answered it was given {names}"
        made = CudaError(f"a kernel failed on {self._device}", error.status, reason)
        self._fault = str(made).partition("\n")[0]
        return made
