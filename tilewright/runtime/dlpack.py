"""Zero-copy access to arrays of other libraries, through DLPack.

NumPy reads most of them itself; element types that it lacks (bfloat16, float8) are read here from
DLPack's structure. PyTorch's tensors have a faster conversion.
"""

from __future__ import annotations

import ctypes
import sys
from typing import Any, Final, cast

import numpy as np

from tilewright.runtime.arrays import Array
from tilewright.runtime.device import CPU
from tilewright.support.dtype import DType
from tilewright.support.errors import UserError

#: Element types that NumPy lacks, by DLPack's code and bits.
_DTYPES: Final = {
    (4, 16): "bfloat16",
    (10, 8): "float8_e4m3fn",
    (11, 8): "float8_e4m3fnuz",
    (12, 8): "float8_e5m2",
    (13, 8): "float8_e5m2fnuz",
    (14, 8): "float8_e8m0fnu",
}


class DLTensor(ctypes.Structure):
    """DLTensor, the first field of every DLManagedTensor."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


#: DLPack's codes for NumPy's kinds of types.
_KINDS: Final = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}


def type_code(dtype: np.dtype[Any]) -> tuple[int, int]:
    """DLPack's code and bits of an element type."""
    known = {DType.of(name).numpy: code for code, name in _DTYPES.items()}
    return known.get(dtype) or (_KINDS[dtype.kind], 8 * dtype.itemsize)


def numpy_type(tensor: DLTensor) -> np.dtype[Any]:
    """The element type of a tensor."""
    name = _DTYPES.get((tensor.code, tensor.bits))
    if name is not None:
        return DType.of(name).numpy
    kinds = {code: kind for kind, code in _KINDS.items()}
    if tensor.code not in kinds or tensor.lanes != 1:
        raise UserError("cannot take an array of unknown elements through DLPack")
    return np.dtype(f"{kinds[tensor.code]}{tensor.bits // 8}")


def as_array(value: Any) -> Array | None:
    """`value` as an array that shares its memory; None if it is no array.

    A NumPy scalar becomes a read-only array without dimensions.
    """
    if isinstance(value, np.ndarray):
        return cast("Array", value)
    if isinstance(value, np.generic):
        number: Array = np.asarray(cast("Any", value))
        number.flags.writeable = False
        return number
    array = array_of_tensor(value)
    if array is not None:
        return array
    if not hasattr(value, "__dlpack__"):
        return None
    try:
        return np.from_dlpack(value)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        array = _of_other_type(value)
        if array is None:
            raise _refusal(value, str(error)) from None
        return array


def array_of_tensor(value: Any) -> Array | None:
    """A PyTorch tensor as an array that shares its memory, at a fifth of DLPack's cost.

    None for other values, and for tensors that NumPy refuses; DLPack's error then gives the reason.
    """
    torch: Any = sys.modules.get("torch")
    if torch is None or not isinstance(value, getattr(torch, "Tensor", ())):
        return None
    try:
        return value.numpy()
    except (RuntimeError, TypeError):
        return None


def _of_other_type(value: Any) -> Array | None:
    """An array of a type that NumPy lacks; None where that was not the problem."""
    try:
        capsule = value.__dlpack__()
    except (BufferError, RuntimeError, TypeError, ValueError):
        return None
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    tensor = DLTensor.from_address(get(capsule, b"dltensor"))
    name = _DTYPES.get((tensor.code, tensor.bits))
    if name is None or tensor.device_type != CPU.dlpack_type or tensor.lanes != 1:
        return None
    return np.asarray(_Memory(tensor, capsule)).view(DType.of(name).numpy)


class _Memory:
    """The memory of a tensor for NumPy; the capsule is released with the last reference."""

    def __init__(self, tensor: DLTensor, capsule: object) -> None:
        size = tensor.bits // 8
        strides = [tensor.strides[k] * size for k in range(tensor.ndim)] if tensor.strides else None
        self._capsule = capsule
        self.__array_interface__ = {
            "data": ((tensor.data or 0) + tensor.byte_offset, False),
            "shape": tuple(tensor.shape[k] for k in range(tensor.ndim)),
            "strides": None if strides is None else tuple(strides),
            "typestr": f"<u{size}",
            "version": 3,
        }


def _refusal(value: Any, reason: str) -> UserError:
    return UserError(
        f"cannot take a {type(value).__name__} through DLPack",
        reason=reason,
        remedy="pass a NumPy array, or a tensor in the CPU's memory that needs no gradient",
    )
