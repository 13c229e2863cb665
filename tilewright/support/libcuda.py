"""NVIDIA's driver (`libcuda.so.1`), called through ctypes: no toolkit is needed.

Whoever has a GPU has the driver. Only functions loaded here may be called; each returns a status,
which `call` turns into an error.
"""

from __future__ import annotations

import ctypes
import re
import sys
from collections.abc import Callable
from functools import cache
from typing import Any, Final

from tilewright.support.errors import UserError

_NAMES: Final = ("nvcuda.dll",) if sys.platform == "win32" else ("libcuda.so.1", "libcuda.so")
#: CUDA 12.0, the first driver that takes the PTX that is generated here.
_LEAST_VERSION: Final = 12000
#: CUDA 12.3, the first one whose graphs can start kernels early.
_EARLY_LAUNCHES: Final = 12030

#: Status codes of refused calls.
OUT_OF_MEMORY: Final = 2
TOO_MANY_BLOCKS: Final = 720
#: Status codes of refused code: it is damaged, for other GPUs, or newer than the driver.
CODE_REFUSED: Final = frozenset([200, 209, 218, 221, 222, 223, 300])
#: Remedies for some status codes: a kernel failed, after which the driver runs nothing more; or
#: the process was forked from one that had initialized the driver.
_FAILED_KERNELS: Final = frozenset([700, 702, 710, *range(714, 720)])
_REMEDIES: Final = {
    _FAILED_KERNELS: "start the process anew: after a kernel has failed, the driver runs nothing"
    " else for this one on the GPU, and what its models computed before is gone; target 'simt'"
    " finds where a kernel goes wrong",
    frozenset([3]): "use the GPU in processes that were not forked from one that does: start"
    " workers by multiprocessing.get_context('spawn')",
}
#: Attributes of devices, by the driver's numbers.
MAJOR, MINOR, MULTIPROCESSORS, SHARED_IN_ALL = 75, 76, 16, 81


class CudaError(UserError):
    """The driver refused a call; `status` is its number."""

    def __init__(self, failed: str, status: int, reason: str) -> None:
        self.status = status
        remedy = next((text for known, text in _REMEDIES.items() if status in known), "")
        super().__init__(failed, reason=reason, remedy=remedy)

    @property
    def is_of_a_kernel(self) -> bool:
        """Whether a kernel failed, after which the driver runs nothing more."""
        return self.status in _FAILED_KERNELS


@cache
def why_no_driver() -> str:
    """The reason why there is no driver to call; empty where there is one."""
    return _load()[1]


def let_go(name: str, *args: Any) -> None:
    """Call a function that releases something; failures are ignored, as there is nothing left to
    release then: the process was forked, or a kernel has failed."""
    if _load()[0] is not None:
        _function(name)(*args)


def call(name: str, *args: Any) -> None:
    """Call a function of the driver; raises `CudaError` where it fails."""
    status = _function(name)(*args)
    if status:
        raise CudaError(f"{name} failed", status, _text_of(_load()[0], status))


@cache
def _function(name: str) -> Callable[..., int]:
    """A function of the driver, cached: looking it up takes longer than calling it."""
    library, reason = _load()
    if library is None:
        raise UserError(
            "no NVIDIA GPU can be used here",
            reason=reason,
            remedy="run on a machine with a GPU and its driver, or compile for target 'llvm'",
        )
    return library[name]


def devices() -> int:
    """How many GPUs the driver has; 0 where there is no driver."""
    if why_no_driver():
        return 0
    count = ctypes.c_int()
    call("cuDeviceGetCount", ctypes.byref(count))
    return count.value


def driver_version() -> str:
    """The version of CUDA that the driver is for."""
    version = ctypes.c_int()
    call("cuDriverGetVersion", ctypes.byref(version))
    return _version_text(version.value)


@cache
def has_early_launches() -> bool:
    """Whether kernels of a graph can start before the kernels they depend on have ended."""
    version = ctypes.c_int()
    call("cuDriverGetVersion", ctypes.byref(version))
    return version.value >= _EARLY_LAUNCHES


def attribute(number: int, device: int = 0) -> int:
    """An attribute of a device, by the driver's number for it."""
    value = ctypes.c_int()
    call("cuDeviceGetAttribute", ctypes.byref(value), number, device)
    return value.value


def runs(architecture: str, capability: tuple[int, int]) -> bool:
    """Whether a device of a capability runs code for an architecture, such as `sm_90a`.

    Names that end with a letter are for devices of exactly that capability.
    """
    named = re.fullmatch(r"sm_(\d+)(\d)(a?)", architecture, re.ASCII)
    if named is None:
        return False
    wanted = int(named[1]), int(named[2])
    return capability == wanted if named[3] else capability >= wanted


@cache
def _load() -> tuple[Any, str]:
    """The driver, ready to be called, or the reason why it is not."""
    opened: list[Any] = [_open(name) for name in _NAMES]
    library: Any = next((found for found in opened if found is not None), None)
    if library is None:
        return None, f"there is no driver ({_NAMES[0]} is not found)"
    version = ctypes.c_int()
    library["cuDriverGetVersion"](ctypes.byref(version))
    if version.value < _LEAST_VERSION:
        found, least = map(_version_text, (version.value, _LEAST_VERSION))
        return None, f"the driver is for CUDA {found}, and {least} or later is needed"
    status = int(library["cuInit"](0))
    if status:
        return None, f"the driver finds no GPU: {_text_of(library, status)}"
    return library, ""


def _version_text(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"


def _open(name: str) -> Any:
    try:
        return ctypes.CDLL(name)
    except OSError:
        return None


def _text_of(library: Any, status: int) -> str:
    text = ctypes.c_char_p()
    library["cuGetErrorString"](status, ctypes.byref(text))
    return (text.value or b"unknown error").decode(errors="replace") + f" ({status})"
