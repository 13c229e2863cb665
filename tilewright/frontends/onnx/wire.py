"""Reads models without their weights: large tensors stay where they are in the file.

A model is a protobuf message. This reader knows just enough of it to find the bytes of tensors:
those of large ones are left out of the message that is parsed, which refers to their position in
the file instead, as ONNX does for data in separate files.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tilewright.frontends.common.wire import BYTES, VARINT, Field, fields_of

#: Stands for the model's own file; no file can have this name.
OWN_FILE: Final = "\0"
#: Tensors of fewer bytes are parsed.
_LARGE: Final = 1 << 16
_GRAPH, _INITIALIZER = 7, 5
_RAW_DATA, _EXTERNAL_DATA, _LOCATION = 9, 13, 14


def without_weights(data: memoryview) -> bytes | None:
    """The model without its large tensors; None if it is not understood."""
    try:
        return b"".join(_model(data))
    except ValueError:
        return None


def _model(data: memoryview) -> Iterator[bytes]:
    for field in fields_of(data, 0, len(data)):
        if field.number == _GRAPH and field.kind == BYTES:
            yield _message(_GRAPH, b"".join(_graph(data, field)))
        else:
            yield bytes(data[field.begin : field.end])


def _graph(data: memoryview, graph: Field) -> Iterator[bytes]:
    for field in fields_of(data, graph.start, graph.end):
        is_tensor = field.number == _INITIALIZER and field.kind == BYTES
        if is_tensor and field.end - field.start >= _LARGE:
            yield _message(_INITIALIZER, _tensor(data, field))
        else:
            yield bytes(data[field.begin : field.end])


def _tensor(data: memoryview, tensor: Field) -> bytes:
    fields = list(fields_of(data, tensor.start, tensor.end))
    raw = [f for f in fields if f.number == _RAW_DATA]
    is_elsewhere = any(f.number in (_EXTERNAL_DATA, _LOCATION) for f in fields)
    if len(raw) != 1 or raw[0].kind != BYTES or is_elsewhere:
        return bytes(data[tensor.start : tensor.end])
    (found,) = raw
    entries = {"location": OWN_FILE, "offset": found.start, "length": found.end - found.start}
    return b"".join(
        [
            *(bytes(data[f.begin : f.end]) for f in fields if f is not found),
            *(_message(_EXTERNAL_DATA, _entry(k, str(v))) for k, v in entries.items()),
            _number(_LOCATION << 3 | VARINT) + _number(1),
        ]
    )


def _entry(key: str, value: str) -> bytes:
    return _message(1, key.encode()) + _message(2, value.encode())


# ---- writing ------------------------------------------------------------------------------------


def _number(value: int) -> bytes:
    made = bytearray()
    while value >= 0x80:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    made.append(value)
    return bytes(made)


def _message(number: int, content: bytes) -> bytes:
    return _number(number << 3 | BYTES) + _number(len(content)) + content
