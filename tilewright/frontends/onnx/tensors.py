"""Tensors of a model file as arrays: all element types, packed ones, sparse ones."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from tilewright.frontends.onnx.element_types import element_type
from tilewright.frontends.onnx.external import ExternalFiles
from tilewright.graph import STRING, Array
from tilewright.ir import DType
from tilewright.support.errors import UserError

#: Tensors of more bytes are refused.
_LIMIT: Final = 1 << 46
#: Sparse tensors are made dense up to this many bytes.
_DENSE_LIMIT: Final = 1 << 30
_EXTERNAL: Final = 1
#: The field with the elements of a type, if they are not raw bytes.
_FIELDS: Final = {
    "float32": "float_data",
    "float64": "double_data",
    "int64": "int64_data",
    "uint32": "uint64_data",
    "uint64": "uint64_data",
    "string": "string_data",
}


def read_tensor(proto: Any, files: ExternalFiles) -> tuple[Array, DType]:
    """The array and the element type of a TensorProto."""
    name = proto.name or "a tensor"
    dtype = element_type(proto.data_type, name)
    shape = read_shape(proto.dims, name, dtype)
    if proto.HasField("segment"):
        raise UserError(f"{name} is stored in segments", reason="no version of ONNX defines them")
    return _elements(proto, name, dtype, math.prod(shape), files).reshape(shape), dtype


def read_shape(dims: Any, name: str, dtype: DType) -> tuple[int, ...]:
    """The dimensions of a stored tensor, after a check that they make sense."""
    shape = tuple(int(d) for d in dims)
    if any(d < 0 for d in shape) or len(shape) > 64:
        raise UserError(f"{name} has the shape {list(shape)}")
    if math.prod(d for d in shape if d) * dtype.itemsize > _LIMIT:
        raise UserError(f"{name} has the shape {list(shape)}", reason="no memory can hold that")
    return shape


def _elements(proto: Any, name: str, dtype: DType, count: int, files: ExternalFiles) -> Array:
    if proto.data_location == _EXTERNAL:
        if dtype is STRING:
            raise UserError(f"{name} is a tensor of strings in a file of its own")
        return _from_bytes(files.read(proto, _stored_bytes(dtype, count)), dtype, count)
    if dtype is STRING:
        return _strings(name, proto.string_data, count)
    if proto.HasField("raw_data"):
        data = np.frombuffer(proto.raw_data, np.uint8)
        _require(name, data.size, _stored_bytes(dtype, count), "bytes of data")
        return _from_bytes(data, dtype, count)
    return _from_field(proto, name, dtype, count)


def _stored_bytes(dtype: DType, count: int) -> int:
    return (count * dtype.bits + 7) // 8 if dtype.bits in (2, 4) else count * dtype.itemsize


def _from_bytes(data: Array, dtype: DType, count: int) -> Array:
    if dtype.bits in (2, 4):
        return _unpacked(data, dtype, count)
    if dtype.is_bool:
        return data != 0
    return data.view(dtype.numpy)


def _unpacked(data: Array, dtype: DType, count: int) -> Array:
    """Elements under a byte, the first in the lowest bits, one byte each."""
    bits = dtype.bits
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    codes = ((data[:, None] >> shifts) & ((1 << bits) - 1)).ravel()[:count]
    if dtype.is_float:
        return codes.astype(np.uint8).view(dtype.numpy)
    numbers = codes.astype(np.int8)
    if dtype.is_signed:
        numbers = np.where(numbers >= 1 << (bits - 1), numbers - (1 << bits), numbers)
    return numbers.astype(dtype.numpy)


def _from_field(proto: Any, name: str, dtype: DType, count: int) -> Array:
    field = _FIELDS.get(dtype.name, "int32_data")
    numbers = getattr(proto, field)
    if dtype.bits in (2, 4):
        _require(name, len(numbers), _stored_bytes(dtype, count), "bytes of data")
        return _unpacked(np.array(numbers, np.int64).astype(np.uint8), dtype, count)
    _require(name, len(numbers), count, "elements")
    if field == "int32_data" and dtype.is_float:
        width = {1: np.uint8, 2: np.uint16}[dtype.itemsize]
        return np.array(numbers, np.int64).astype(width).view(dtype.numpy)
    wide = {"int32_data": np.int32, "uint64_data": np.uint64}.get(field, dtype.numpy)
    return np.array(numbers, wide).astype(dtype.numpy, copy=False)


def _strings(name: str, texts: Any, count: int) -> Array:
    _require(name, len(texts), count, "elements")
    result = np.empty(count, object)
    for k, text in enumerate(texts):
        result[k] = text.decode("utf-8", "replace")
    return result


def _require(name: str, found: int, wanted: int, what: str) -> None:
    if found != wanted:
        raise UserError(
            f"{name} has {found} {what}",
            reason=f"its type and shape take {wanted}",
            remedy="check that the file is complete",
        )


# ---- sparse tensors -----------------------------------------------------------------------------


def read_sparse(proto: Any, files: ExternalFiles) -> tuple[Array, DType]:
    """A SparseTensorProto as a dense array."""
    name = proto.values.name or "a sparse tensor"
    values, dtype = read_tensor(proto.values, files)
    shape = read_shape(proto.dims, name, dtype)
    size = math.prod(shape)
    if size * dtype.itemsize > _DENSE_LIMIT:
        raise UserError(
            f"{name} has the shape {list(shape)}",
            reason=f"sparse tensors become dense, up to {_DENSE_LIMIT >> 20} MiB",
        )
    positions = _positions(read_tensor(proto.indices, files)[0], shape, name, values.size)
    dense = np.full(size, "", object) if dtype is STRING else np.zeros(size, dtype.numpy)
    dense[positions] = values.ravel()
    return dense.reshape(shape), dtype


def _positions(indices: Array, shape: tuple[int, ...], name: str, count: int) -> Array:
    """The positions of the elements in the flat dense tensor."""
    wrong = UserError(f"{name} has indices that do not fit the shape {list(shape)}")
    if indices.dtype != np.int64 or indices.shape not in ((count,), (count, len(shape))):
        raise wrong
    limits = np.array([math.prod(shape)] if indices.ndim == 1 else shape, np.int64)
    rows = indices.reshape(count, -1)
    if rows.size and (np.any(rows < 0) or np.any(rows >= limits)):
        raise wrong
    if indices.ndim == 1:
        return indices
    return np.ravel_multi_index(tuple(rows.T), shape) if count else np.empty(0, np.int64)
