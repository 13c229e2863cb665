"""The weights of a caffemodel: blobs of all layers, by name.

The file is a NetParameter in protobuf's binary form; of its fields only names and blobs are read.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from tilewright.frontends.common.wire import BYTES, FIXED32, VARINT, Field, fields_of, read_number
from tilewright.graph import Array
from tilewright.support.errors import UserError

#: Fields of NetParameter: layers of the old generation and of the new one.
_OLD_LAYERS, _LAYERS = 2, 100
#: Fields of a layer, by generation: its name and its blobs.
_NAME_AND_BLOBS: Final = {_OLD_LAYERS: (4, 6), _LAYERS: (1, 7)}
#: Fields of BlobProto.
_OLD_SHAPE: Final = (1, 2, 3, 4)
_DATA, _SHAPE, _DOUBLE_DATA = 5, 7, 8
#: OpenCV's `shrinkCaffeModel` writes numbers in other types.
_RAW_TYPE, _RAW_DATA = 10, 12
_RAW_TYPES: Final = {0: "<f8", 1: "<f4", 2: "<f2"}
#: Unpacked numbers are read one by one, up to this many.
_MOST_SINGLE: Final = 1 << 20
_MOST_DIMS: Final = 32


def read_blobs(content: np.ndarray[Any, Any]) -> dict[str, list[Array]]:
    """The blobs of each layer that has any."""
    if content[:4].tobytes() == b"\x89HDF":
        raise UserError(
            "the caffemodel is an HDF5 file", remedy="save it in Caffe's binary format instead"
        )
    data = content.data
    try:
        return _net(data)
    except ValueError as error:
        raise UserError(
            "the caffemodel cannot be read",
            reason=str(error),
            remedy="check that the file is complete",
        ) from None


def _net(data: memoryview) -> dict[str, list[Array]]:
    found: dict[str, list[Array]] = {}
    for field in fields_of(data, 0, len(data)):
        if field.number in _NAME_AND_BLOBS and field.kind == BYTES:
            name, blobs = _layer(data, field)
            if blobs:
                found[name] = blobs
    return found


def _layer(data: memoryview, layer: Field) -> tuple[str, list[Array]]:
    name_field, blob_field = _NAME_AND_BLOBS[layer.number]
    name, blobs = "", list[Array]()
    for field in fields_of(data, layer.start, layer.end):
        if field.kind != BYTES:
            continue
        if field.number == name_field:
            name = bytes(data[field.start : field.end]).decode("utf-8", "replace")
        elif field.number == blob_field:
            blobs.append(_blob(data, field))
    return name, blobs


def _blob(data: memoryview, blob: Field) -> Array:
    old, raw_type = dict[int, int](), 1
    shape: list[int] | None = None
    parts: list[Array] = []
    for field in fields_of(data, blob.start, blob.end):
        if field.number in _OLD_SHAPE and field.kind == VARINT:
            old[field.number] = field.value
        elif field.number == _SHAPE and field.kind == BYTES:
            shape = _shape(data, field)
        elif field.number == _DATA and field.kind in (BYTES, FIXED32):
            parts.append(np.frombuffer(data[field.start : field.end], "<f4"))
        elif field.number == _DOUBLE_DATA and field.kind == BYTES:
            parts.append(np.frombuffer(data[field.start : field.end], "<f8").astype(np.float32))
        elif field.number == _RAW_TYPE and field.kind == VARINT:
            raw_type = field.value
        elif field.number == _RAW_DATA and field.kind == BYTES:
            if raw_type not in _RAW_TYPES:
                raise ValueError(f"a blob has numbers of type {raw_type}")
            numbers = np.frombuffer(data[field.start : field.end], _RAW_TYPES[raw_type])
            parts.append(numbers.astype(np.float32))
        if len(parts) > _MOST_SINGLE:
            raise ValueError("a blob has its numbers one by one")
    numbers = parts[0] if len(parts) == 1 else np.concatenate([np.empty(0, "<f4"), *parts])
    if shape is None:
        shape = [old.get(k, 1) for k in _OLD_SHAPE] if old else [numbers.size]
    if math.prod(shape) != numbers.size:
        raise ValueError(f"a blob of shape {shape} has {numbers.size} numbers")
    return numbers.astype(np.float32, copy=False).reshape(shape)


def _shape(data: memoryview, message: Field) -> list[int]:
    shape: list[int] = []
    for field in fields_of(data, message.start, message.end):
        if field.number != 1:
            continue
        at = field.start
        while at < field.end:
            extent, at = read_number(data, at)
            shape.append(extent)
            if len(shape) > _MOST_DIMS:
                raise ValueError(f"a blob has more than {_MOST_DIMS} dimensions")
    return shape
