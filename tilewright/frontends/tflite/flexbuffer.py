"""Options of custom operators that are written as a flexbuffer: a map of numbers and vectors.

Its last byte is the width of the root, the byte before its type. Types include the widths of what
they refer to; a map is a vector of values, preceded by the position of the vector of its keys.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from tilewright.frontends.tflite.flatbuffer import DamagedError

_INT, _UINT, _FLOAT, _MAP, _BOOL = 1, 2, 3, 9, 26
_INDIRECT: Final = {6: _INT, 7: _UINT, 8: _FLOAT}
_VECTORS: Final = {11: _INT, 12: _UINT, 13: _FLOAT, 36: _UINT}
_KINDS: Final = {_INT: "i", _UINT: "u", _FLOAT: "f", _BOOL: "u"}
_MOST: Final = 1 << 16


def read_map(data: bytes) -> dict[str, Any]:
    """The numbers, and vectors of numbers, of a map by name; its other values are left out."""
    if not data:
        return {}
    if len(data) < 3:
        raise DamagedError("the options of a custom operator are too short")
    return _Flexbuffer(data).root()


class _Flexbuffer:
    def __init__(self, data: bytes) -> None:
        self._data = data

    def root(self) -> dict[str, Any]:
        width = self._data[-1]
        kind, inner = _packed(self._data[-2])
        if kind != _MAP or width not in (1, 2, 4, 8):
            raise DamagedError("the options of a custom operator are no map")
        return self._map(self._target(len(self._data) - 2 - width, width), inner)

    def _map(self, start: int, width: int) -> dict[str, Any]:
        count = self._unsigned(start - width, width)
        if count > _MOST:
            raise DamagedError("the options of a custom operator are too many")
        keys = self._target(start - 3 * width, width)
        key_width = self._unsigned(start - 2 * width, width)
        if key_width not in (1, 2, 4, 8):
            raise DamagedError("the options of a custom operator have no names")
        found: dict[str, Any] = {}
        for k in range(count):
            name = self._text(self._target(keys + k * key_width, key_width))
            kind = self._bytes(start + count * width + k, 1)[0]
            value = self._value(start + k * width, width, *_packed(kind))
            if value is not None:
                found[name] = value
        return found

    def _value(self, at: int, width: int, kind: int, inner: int) -> Any:
        if kind in _KINDS:
            return self._number(at, width, kind)
        if kind in _INDIRECT:
            return self._number(self._target(at, width), inner, _INDIRECT[kind])
        if kind in _VECTORS:
            start = self._target(at, width)
            count = self._unsigned(start - inner, inner)
            raw = self._bytes(start, count * inner)
            return np.frombuffer(raw, f"<{_KINDS[_VECTORS[kind]]}{inner}").tolist()
        return None

    def _number(self, at: int, width: int, kind: int) -> Any:
        raw = self._bytes(at, width)
        if kind == _FLOAT and width == 1:
            raise DamagedError("a custom operator has a float of one byte")
        return np.frombuffer(raw, f"<{_KINDS[kind]}{width}")[0].item()

    def _target(self, at: int, width: int) -> int:
        return at - self._unsigned(at, width)

    def _unsigned(self, at: int, width: int) -> int:
        return int.from_bytes(self._bytes(at, width), "little")

    def _text(self, at: int) -> str:
        end = self._data.find(b"\0", max(at, 0))
        return self._bytes(at, end - at).decode("utf-8", "replace")

    def _bytes(self, at: int, size: int) -> bytes:
        if at < 0 or size < 0 or at + size > len(self._data):
            raise DamagedError("the options of a custom operator refer to what is not there")
        return self._data[at : at + size]


def _packed(byte: int) -> tuple[int, int]:
    """A type, and the width of the numbers that it refers to."""
    return byte >> 2, 1 << (byte & 3)
