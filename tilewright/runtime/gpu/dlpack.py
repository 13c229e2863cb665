"""Zero-copy exchange of device arrays with other libraries, through DLPack."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, Final

import numpy as np

from tilewright.runtime.dlpack import DLTensor, numpy_type, type_code
from tilewright.support.errors import UserError

#: The module with `from_dlpack` of each library, by the package of its array type.
_READERS: Final = {"torch": "torch", "cupy": "cupy", "jax": "jax.dlpack", "jaxlib": "jax.dlpack"}


class _Managed(ctypes.Structure):
    """DLManagedTensor."""

    _fields_ = (
        ("tensor", DLTensor),
        ("owner", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
    )


class Borrowed:
    """Memory of another library's array; the capsule is released with the last reference."""

    def __init__(self, value: Any, stream: int) -> None:
        #: The array it belongs to.
        self.value = value
        self.capsule = value.__dlpack__(stream=stream)
        get = ctypes.pythonapi.PyCapsule_GetPointer
        get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
        tensor = DLTensor.from_address(get(self.capsule, b"dltensor"))
        self.shape = tuple(tensor.shape[k] for k in range(tensor.ndim))
        self.dtype = numpy_type(tensor)
        self.address = (tensor.data or 0) + tensor.byte_offset
        if tensor.strides and not _is_compact(self.shape, tensor.strides):
            raise UserError(
                f"cannot take a {type(value).__name__} on the device",
                reason="its elements do not follow each other",
                remedy="pass a contiguous copy of it",
            )


def _is_compact(shape: Sequence[int], strides: Any) -> bool:
    expected = 1
    for axis in reversed(range(len(shape))):
        if shape[axis] != 1 and strides[axis] != expected:
            return False
        expected *= shape[axis]
    return True


def follow(value: Any, stream: int) -> None:
    """Let a stream wait for the work launched so far on an array's own stream."""
    value.__dlpack__(stream=stream)


def is_writeable(value: Any) -> bool:
    """Whether an array may be written to; JAX's are immutable."""
    return _READERS.get(_home_of(value)) != "jax.dlpack"


def _home_of(value: Any) -> str:
    return type(value).__module__.partition(".")[0]


def device_of(value: Any) -> int:
    """The type of an array's device in DLPack; 1 is the CPU."""
    ask = getattr(value, "__dlpack_device__", None)
    return 1 if ask is None else int(ask()[0])


def reader_of(value: Any) -> Callable[[Any], Any] | None:
    """The `from_dlpack` of the library of `value`, if it is loaded."""
    home = _READERS.get(_home_of(value))
    if home is None or home.partition(".")[0] not in sys.modules:
        return None
    return import_module(home).from_dlpack


# ---- export -------------------------------------------------------------------------------------

#: The exported tensors, until their readers release them.
_HELD: Final[dict[int, tuple[Any, ...]]] = {}


def held_capsules() -> int:
    """The number of arrays that others hold through capsules."""
    return len(_HELD)


@ctypes.CFUNCTYPE(None, ctypes.c_void_p)
def _let_go(address: int) -> None:
    _HELD.pop(address, None)


@ctypes.CFUNCTYPE(None, ctypes.c_void_p)
def _unread(capsule: int) -> None:
    """The destructor of a capsule: one that was never read still owns its tensor."""
    is_valid = ctypes.pythonapi.PyCapsule_IsValid
    is_valid.restype, is_valid.argtypes = ctypes.c_int, [ctypes.c_void_p, ctypes.c_char_p]
    if is_valid(capsule, b"dltensor"):
        get = ctypes.pythonapi["PyCapsule_GetPointer"]
        get.restype, get.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_char_p]
        _HELD.pop(get(capsule, b"dltensor"), None)


def capsule_of(array: Any, device_type: int) -> Any:
    """A capsule of an array, which it keeps alive."""
    code, bits = type_code(np.dtype(array.dtype))
    shape = (ctypes.c_int64 * max(1, array.ndim))(*array.shape)
    tensor = DLTensor(array.address, device_type, 0, array.ndim, code, bits, 1, shape, None, 0)
    managed = _Managed(tensor, None, ctypes.cast(_let_go, ctypes.c_void_p))
    address = ctypes.addressof(managed)
    _HELD[address] = (managed, shape, array)
    new = ctypes.pythonapi.PyCapsule_New
    new.restype = ctypes.py_object
    new.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    return new(address, b"dltensor", ctypes.cast(_unread, ctypes.c_void_p))
