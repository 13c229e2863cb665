"""Arrays of other libraries, over the same memory, through DLPack.

NumPy reads most of them itself; element types that it does not know (bfloat16, float8) are read
here from the structure that DLPack describes. Tensors of PyTorch have a shorter way to NumPy.
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

#: Codes of element types that NumPy lacks, with their bits.
_DTYPES: Final = {
    (4, 16): "bfloat16",
    (10, 8): "float8_e4m3fn",
    (11, 8): "float8_e4m3fnuz",
    (12, 8): "float8_e5m2",
    (13, 8): "float8_e5m2fnuz",
    (14, 8): "float8_e8m0fnu",
}


class DLTensor(ctypes.Structure):
    """DLTensor, with which every DLManagedTensor begins."""

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


#: Codes of kinds of element types that NumPy has.
_KINDS: Final = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}


def type_code(dtype: np.dtype[Any]) -> tuple[int, int]:
    """How DLPack names an element type: a code, and bits."""
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
    """`value` as an array over the same memory; None if it is no array.

    One of NumPy's numbers is an array without dimensions that cannot be written to.
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
    """One of PyTorch's tensors as an array over the same memory, for a fifth of what DLPack costs.

    None for all else, and for tensors that NumPy does not take: DLPack tells why.
    """
    torch: Any = sys.modules.get("torch")
    if torch is None or not isinstance(value, getattr(torch, "Tensor", ())):
        return None
    try:
        return value.numpy()
    except (RuntimeError, TypeError):
        return None


def _of_other_type(value: Any) -> Array | None:
    """An array of a type that NumPy lacks; None where that is not what ails it."""
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
    """Memory of a tensor as NumPy takes it; the capsule gives it back when nobody holds it."""

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
