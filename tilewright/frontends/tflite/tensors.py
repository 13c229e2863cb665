"""Constants of all element types, dense and sparse, and how tensors are quantized."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from tilewright.frontends.tflite import schema
from tilewright.frontends.tflite.flatbuffer import DamagedError, Table
from tilewright.graph import STRING, Array
from tilewright.ir import DType
from tilewright.support.errors import UserError

#: Most elements of a sparse or packed constant after expansion.
_MOST_ELEMENTS: Final = 1 << 31
#: Types of less than a byte, with their bits.
_PACKED: Final = {"int4": 4, "uint4": 4, "int2": 2}


class Quantization(NamedTuple):
    """real = (stored - zero) * scale, with one of each, or one for each index along an axis."""

    scales: Array
    zeros: Array
    axis: int

    @property
    def is_single(self) -> bool:
        return self.scales.size == 1

    @property
    def scale(self) -> np.float32:
        """The single scale."""
        self._require_single()
        return np.float32(self.scales[0])

    @property
    def zero(self) -> int:
        """The single zero point."""
        self._require_single()
        return int(self.zeros[0])

    def _require_single(self) -> None:
        if not self.is_single:
            raise UserError(
                f"a tensor has {self.scales.size} scales", reason="the operator takes one for all"
            )


def read_quantization(table: Table | None, rank: int, name: str) -> Quantization | None:
    """How a tensor is quantized; None if it is not."""
    if table is None:
        return None
    fields = schema.QUANTIZATION
    scales = table.array(fields["scale"], np.dtype("<f4"))
    if not len(scales):
        return None
    zeros = table.array(fields["zero_point"], np.dtype("<i8"))
    if len(zeros) not in (0, 1, len(scales)):
        raise DamagedError(f"the tensor {name} has {len(scales)} scales, {len(zeros)} zero points")
    if table.number(fields["details_type"], "B"):
        raise UserError(f"the tensor {name} is quantized in a way of its own")
    if np.any(np.abs(zeros) > 1 << 31):
        raise DamagedError(f"the tensor {name} has a zero point beyond all types")
    axis = table.number(fields["dimension"], "i")
    if len(scales) > 1 and not 0 <= axis < rank:
        raise DamagedError(f"the tensor {name} is quantized along axis {axis} of {rank}")
    full = np.broadcast_to(zeros if len(zeros) else np.zeros(1, np.int64), scales.shape)
    return Quantization(scales, full, axis)


# ---- element types ------------------------------------------------------------------------------


def element_type(name: str, what: str) -> DType:
    """The graph's type for one of the schema's."""
    if name == "string":
        return STRING
    if name in _PACKED:
        return DType.of("uint8" if name.startswith("u") else "int8")
    if name.startswith("complex"):
        # Real and imaginary parts are the last dimension.
        return DType.of("float32" if name == "complex64" else "float64")
    if name in ("resource", "variant"):
        raise UserError(f"{what} is a tensor of {name}", reason="there is no such element type")
    return DType.of(name)


# ---- constants ----------------------------------------------------------------------------------


def read_constant(
    data: np.ndarray[Any, Any], type_: str, shape: Sequence[int], sparsity: Table | None, name: str
) -> Array | None:
    """The elements of a tensor that has data."""
    if type_ in ("resource", "variant"):
        return None
    if type_ == "string":
        return _strings(data, shape, name)
    count = math.prod(shape)
    if count > _MOST_ELEMENTS * 64:
        raise DamagedError(f"the tensor {name} has {count} elements")
    if sparsity is not None:
        dtype = element_type(type_, name).numpy
        return _dense(_elements(data, dtype, name), shape, sparsity, name)
    if type_ in _PACKED:
        return _unpacked(data, _PACKED[type_], type_.startswith("u"), count, name).reshape(shape)
    found = _elements(data, element_type(type_, name).numpy, name)
    parts = (2,) if type_.startswith("complex") else ()
    if len(found) != count * math.prod(parts):
        raise DamagedError(f"the tensor {name} has {len(found)} elements for the shape {shape}")
    return found.reshape((*shape, *parts))


def _elements(data: np.ndarray[Any, Any], dtype: Any, name: str) -> Array:
    dtype = np.dtype(dtype)
    if len(data) % dtype.itemsize:
        raise DamagedError(f"the tensor {name} has {len(data)} bytes of {dtype}")
    found = data.view(dtype)
    return found if found.flags.aligned else found.copy()


def _unpacked(
    data: np.ndarray[Any, Any], bits: int, unsigned: bool, count: int, name: str
) -> Array:
    """Bytes from types of fewer bits, whose first element is in the lowest bits."""
    each = 8 // bits
    if len(data) != -(-count // each):
        raise DamagedError(f"the tensor {name} has {len(data)} bytes for {count} elements")
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    parts = ((data[:, None] >> shifts) & ((1 << bits) - 1)).reshape(-1)[:count]
    if unsigned:
        return parts.astype(np.uint8)
    wide = parts.astype(np.int16)
    return np.where(wide >= 1 << (bits - 1), wide - (1 << bits), wide).astype(np.int8)


def _strings(data: np.ndarray[Any, Any], shape: Sequence[int], name: str) -> Array:
    """Their number, the start of each and the end of the last, then their bytes."""
    raw = data.tobytes()
    count = int.from_bytes(raw[:4], "little")
    if count != math.prod(shape) or 4 * (count + 2) > len(raw):
        raise DamagedError(f"the tensor {name} has {count} strings for the shape {shape}")
    bounds = np.frombuffer(raw, "<i4", count + 1, 4).tolist()
    found = np.empty(count, object)
    for k, (start, end) in enumerate(itertools.pairwise(bounds)):
        if not 0 <= start <= end <= len(raw):
            raise DamagedError(f"a string of the tensor {name} lies outside of it")
        found[k] = raw[start:end].decode("utf-8", "replace")
    return found.reshape(shape)


# ---- sparse constants ---------------------------------------------------------------------------


def _dense(values: Array, shape: Sequence[int], sparsity: Table, name: str) -> Array:
    """A sparse tensor, expanded.

    Its dimensions, some of which are split into blocks, are traversed in an order of their own. A
    dense one has all its indices; for a sparse one, `segments` gives for each preceding position
    how many indices there are, and `indices` gives these.
    """
    fields = schema.SPARSITY
    order = sparsity.integers(fields["order"])
    blocks = sparsity.integers(fields["blocks"])
    levels = sparsity.tables(fields["dimensions"])
    rank = len(shape)
    if sorted(order) != list(range(rank + len(blocks))) or len(levels) != len(order):
        raise DamagedError(f"the sparse tensor {name} has the dimensions {order[:16]}")
    if any(not 0 <= b < rank for b in blocks) or math.prod(shape) > _MOST_ELEMENTS:
        raise DamagedError(f"the sparse tensor {name} has blocks along {blocks[:16]}")
    places = np.zeros((1, 0), np.int64)
    extents: dict[int, int] = {}
    for axis, level in zip(order, levels, strict=True):
        places, extents[axis] = _walked(places, level, len(values), name)
    if len(places) != len(values):
        raise DamagedError(f"the sparse tensor {name} has {len(values)} values")
    index = _indices(places, order, blocks, extents, shape, name)
    dense = np.zeros(shape, values.dtype)
    dense[tuple(index)] = values
    return dense


def _walked(places: Array, level: Table, most: int, name: str) -> tuple[Array, int]:
    """All positions with one more index, and the extent where the dimension is dense, else 0."""
    fields = schema.DIMENSION
    if level.number(fields["format"], "b") == 0:
        size: int = level.number(fields["size"], "i")
        if not 0 < size * max(len(places), 1) <= max(most, 1):
            raise DamagedError(f"the sparse tensor {name} has a dimension of {size}")
        repeated = np.repeat(places, size, axis=0)
        return np.column_stack([repeated, np.tile(np.arange(size), len(places))]), size
    segments = _vector(level, "segments", name)
    indices = _vector(level, "indices", name)
    counts = np.diff(segments)
    if len(counts) != len(places) or np.any(counts < 0) or counts.sum() != len(indices):
        raise DamagedError(f"the sparse tensor {name} has segments that do not fit")
    return np.column_stack([np.repeat(places, counts, axis=0), indices]), 0


def _vector(level: Table, what: str, name: str) -> Array:
    forms = {1: "<i4", 2: "<u2", 3: "u1"}
    form = forms.get(level.number(schema.DIMENSION[f"{what}_type"], "B"))
    table = level.table(schema.DIMENSION[what])
    if form is None or table is None:
        raise DamagedError(f"the sparse tensor {name} has no {what}")
    return table.array(0, np.dtype(form)).astype(np.int64)


def _indices(
    places: Array,
    order: Sequence[int],
    blocks: Sequence[int],
    extents: dict[int, int],
    shape: Sequence[int],
    name: str,
) -> list[Array]:
    """The index along each dimension of the tensor, of blocks and inside of them."""
    rank = len(shape)
    found = [places[:, list(order).index(axis)] for axis in range(rank)]
    for k, axis in enumerate(blocks):
        inner = places[:, list(order).index(rank + k)]
        found[axis] = found[axis] * extents[rank + k] + inner
    for index, extent in zip(found, shape, strict=True):
        if len(index) and not 0 <= index.min() <= index.max() < extent:
            raise DamagedError(f"the sparse tensor {name} has elements outside of {list(shape)}")
    return found
