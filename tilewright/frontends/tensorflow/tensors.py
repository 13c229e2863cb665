"""Tensors and element types."""

from __future__ import annotations

import math
from typing import Any, Final

import ml_dtypes
import numpy as np

from tilewright.frontends.tensorflow.wire import Message, text
from tilewright.graph import STRING, Array, dtype_of
from tilewright.ir import DType
from tilewright.support.errors import UserError

#: TensorFlow's numbers for element types; a reference to a variable has 100 more.
_TYPES: Final = {
    1: "float32",
    2: "float64",
    3: "int32",
    4: "uint8",
    5: "int16",
    6: "int8",
    7: "string",
    9: "int64",
    10: "bool",
    11: "int8",
    12: "uint8",
    13: "int32",
    14: "bfloat16",
    17: "uint16",
    19: "float16",
    22: "uint32",
    23: "uint64",
    24: "float8_e5m2",
    25: "float8_e4m3fn",
    29: "int4",
    30: "uint4",
}
RESOURCE, VARIANT = 20, 21
_MOST_ELEMENTS: Final = 1 << 36
_REPEATED: Final = 1 << 28


def element_type(number: int, what: str) -> DType:
    """The element type of a number."""
    name = _TYPES.get(number % 100 if number > 100 else number)
    if name is None:
        raise UserError(f"{what} has elements of type {number}", reason="no such type is known")
    return dtype_of(name)


def static_shape(shape: Message, what: str) -> tuple[int, ...]:
    """The extents of a stored tensor."""
    dims = tuple(int(d.size) for d in shape.dim)
    if shape.unknown_rank or any(d < 0 for d in dims) or math.prod(dims) > _MOST_ELEMENTS:
        raise UserError(f"{what} has the shape {list(dims)}")
    return dims


def declared_shape(shape: Message) -> list[int | None] | None:
    """The extents that a file declares: None for an unknown one, or for all."""
    if shape.unknown_rank:
        return None
    return [None if d.size < 0 else int(d.size) for d in shape.dim]


#: The field that holds single numbers of an element type.
_FIELDS: Final = {
    "float32": "float_val",
    "float64": "double_val",
    "int64": "int64_val",
    "bool": "bool_val",
    "float16": "half_val",
    "bfloat16": "half_val",
    "uint32": "uint32_val",
    "uint64": "uint64_val",
}


def read_tensor(proto: Message, what: str) -> tuple[Array, DType]:
    """An array, mapped from the file if its bytes are there, and its element type."""
    dtype = element_type(proto.dtype, what)
    shape = static_shape(proto.tensor_shape, what)
    if dtype is STRING:
        return _strings(proto, shape, what), dtype
    numpy = np.dtype(dtype.numpy)
    content = proto.tensor_content
    if len(content):
        return array_of(content, numpy, shape, what), dtype
    values = getattr(proto, _FIELDS.get(dtype.name, "int_val"))
    return _filled(_numbers(values, dtype, numpy, what), shape, what), dtype


def array_of(data: Any, numpy: np.dtype[Any], shape: tuple[int, ...], what: str) -> Array:
    """Bytes as an array."""
    size = math.prod(shape) * numpy.itemsize
    if len(data) != size:
        raise UserError(f"{what} has {len(data)} bytes", reason=f"its type and shape take {size}")
    return np.frombuffer(data, numpy).reshape(shape)


def _numbers(values: list[Any], dtype: DType, numpy: np.dtype[Any], what: str) -> Array:
    if dtype.name in ("float16", "bfloat16"):
        bits = np.array([v & 0xFFFF for v in values], np.uint16)
        return bits.view(np.float16 if dtype.name == "float16" else ml_dtypes.bfloat16)
    if numpy.kind in "iu":
        bounds = np.iinfo(numpy)
        values = [v & 0xFFFFFFFFFFFFFFFF for v in values] if numpy.kind == "u" else values
        if any(not bounds.min <= v <= bounds.max for v in values):
            raise UserError(f"{what} has numbers that are no {dtype}")
    with np.errstate(all="ignore"):
        return np.array(values, numpy)


def _filled(values: Array, shape: tuple[int, ...], what: str) -> Array:
    """Missing numbers repeat the last one; without any, all are zero."""
    size = math.prod(shape)
    if len(values) == size:
        return values.reshape(shape)
    if len(values) > size:
        raise UserError(f"{what} has {len(values)} numbers for the shape {list(shape)}")
    if size > _REPEATED:
        raise UserError(f"{what} repeats a number {size} times")
    made = np.zeros(size, values.dtype)
    made[: len(values)] = values
    if len(values):
        made[len(values) :] = values[-1]
    return made.reshape(shape)


def _strings(proto: Message, shape: tuple[int, ...], what: str) -> Array:
    values = [text(v) for v in proto.string_val]
    size = math.prod(shape)
    if len(values) > size or size > _REPEATED or (not values and size):
        raise UserError(f"{what} has {len(values)} texts for the shape {list(shape)}")
    made = np.empty(size, object)
    made[:] = values + values[-1:] * (size - len(values))
    return made.reshape(shape)
