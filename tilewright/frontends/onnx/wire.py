"""Models read without their weights: large tensors are left where they are in the file.

A model is a protobuf message. This reader knows just enough of it to find the bytes of tensors:
those of large ones are left out of what is parsed, which says instead where in the file they lie,
as ONNX says it of data in files of their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

#: What names the model's own file; no file can be called so.
OWN_FILE: Final = "\0"
#: Tensors of fewer bytes are parsed.
_LARGE: Final = 1 << 16
_GRAPH, _INITIALIZER = 7, 5
_RAW_DATA, _EXTERNAL_DATA, _LOCATION = 9, 13, 14
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_FIXED: Final = {_FIXED64: 8, _FIXED32: 4}


class _Field(NamedTuple):
    """A field: where it begins, where its contents do, and where both end."""

    number: int
    kind: int
    begin: int
    start: int
    end: int


def without_weights(data: memoryview) -> bytes | None:
    """The model without its large tensors; None if it is not understood."""
    try:
        return b"".join(_model(data))
    except (IndexError, ValueError):
        return None


def _model(data: memoryview) -> Iterator[bytes]:
    for field in _fields(data, 0, len(data)):
        if field.number == _GRAPH and field.kind == _BYTES:
            yield _message(_GRAPH, b"".join(_graph(data, field)))
        else:
            yield bytes(data[field.begin : field.end])


def _graph(data: memoryview, graph: _Field) -> Iterator[bytes]:
    for field in _fields(data, graph.start, graph.end):
        is_tensor = field.number == _INITIALIZER and field.kind == _BYTES
        if is_tensor and field.end - field.start >= _LARGE:
            yield _message(_INITIALIZER, _tensor(data, field))
        else:
            yield bytes(data[field.begin : field.end])


def _tensor(data: memoryview, tensor: _Field) -> bytes:
    fields = list(_fields(data, tensor.start, tensor.end))
    raw = [f for f in fields if f.number == _RAW_DATA]
    is_elsewhere = any(f.number in (_EXTERNAL_DATA, _LOCATION) for f in fields)
    if len(raw) != 1 or raw[0].kind != _BYTES or is_elsewhere:
        return bytes(data[tensor.start : tensor.end])
    (found,) = raw
    entries = {"location": OWN_FILE, "offset": found.start, "length": found.end - found.start}
    return b"".join(
        [
            *(bytes(data[f.begin : f.end]) for f in fields if f is not found),
            *(_message(_EXTERNAL_DATA, _entry(k, str(v))) for k, v in entries.items()),
            _number(_LOCATION << 3 | _VARINT) + _number(1),
        ]
    )


def _entry(key: str, value: str) -> bytes:
    return _message(1, key.encode()) + _message(2, value.encode())


# ---- the wire -----------------------------------------------------------------------------------


def _fields(data: memoryview, begin: int, end: int) -> Iterator[_Field]:
    """The fields of a message; `ValueError` where it is none."""
    while begin < end:
        tag, start = _read_number(data, begin)
        kind = tag & 7
        if kind == _VARINT:
            _, stop = _read_number(data, start)
        elif kind == _BYTES:
            size, start = _read_number(data, start)
            stop = start + size
        else:
            stop = start + _FIXED.get(kind, end)
        if stop > end:
            raise ValueError("a field ends after its message")
        yield _Field(tag >> 3, kind, begin, start, stop)
        begin = stop


def _read_number(data: memoryview, at: int) -> tuple[int, int]:
    """A number, and where it ends."""
    value = shift = 0
    while shift < 70:
        byte = data[at]
        at, value, shift = at + 1, value | (byte & 0x7F) << shift, shift + 7
        if byte < 0x80:
            return value, at
    raise ValueError("a number of more than 64 bits")


def _number(value: int) -> bytes:
    made = bytearray()
    while value >= 0x80:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    made.append(value)
    return bytes(made)


def _message(number: int, content: bytes) -> bytes:
    return _number(number << 3 | _BYTES) + _number(len(content)) + content
