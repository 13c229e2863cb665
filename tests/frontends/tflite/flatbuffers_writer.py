"""Writes flatbuffers: tables as dictionaries from field numbers to what the fields hold.

A field holds `(form, number)`, a text, an array, a list of tables, or a table.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

Fields = dict[int, Any]


def flatbuffer(root: Fields, mark: bytes) -> bytes:
    """The file with this root table."""
    writer = _Writer(bytearray(8))
    writer.data[4:8] = mark
    writer.refer(0, writer.table(root))
    writer.finish()
    return bytes(writer.data)


class _Writer:
    """Tables come first and what they refer to behind them: distances are never negative."""

    def __init__(self, data: bytearray) -> None:
        self.data = data
        self._pending: list[tuple[int, Any]] = []

    def refer(self, at: int, target: int) -> None:
        struct.pack_into("<I", self.data, at, target - at)

    def finish(self) -> None:
        while self._pending:
            at, item = self._pending.pop(0)
            self.refer(at, self._item(item))

    def _item(self, item: Any) -> int:
        if isinstance(item, dict):
            return self.table(item)
        if isinstance(item, str):
            start = self._vector(np.frombuffer(item.encode(), np.uint8))
            self.data += b"\0"
            return start
        if isinstance(item, list):
            start = self._vector(np.zeros(len(item), np.uint32))
            self._pending += [(start + 4 + 4 * k, part) for k, part in enumerate(item)]
            return start
        return self._vector(np.asarray(item))

    def _vector(self, items: np.ndarray[Any, Any]) -> int:
        # Data begins at a multiple of 16, as TFLite's buffers do.
        self._align(16, 12)
        start = len(self.data)
        self.data += struct.pack("<I", items.size) + np.ascontiguousarray(items).tobytes()
        return start

    def table(self, fields: Fields) -> int:
        sizes = {f: struct.calcsize(v[0]) if isinstance(v, tuple) else 4 for f, v in fields.items()}
        offsets, end = dict[int, int](), 4
        for field, size in sorted(sizes.items(), key=lambda item: -item[1]):
            end = -(-end // size) * size
            offsets[field] = end
            end += size
        count = max(fields, default=-1) + 1
        self._align(8, 0)
        vtable = len(self.data)
        places = [offsets.get(f, 0) for f in range(count)]
        self.data += struct.pack(f"<HH{count}H", 4 + 2 * count, end, *places)
        self._align(8, 0)
        start = len(self.data)
        self.data += struct.pack("<i", start - vtable) + bytes(end - 4)
        for field, value in fields.items():
            at = start + offsets[field]
            if isinstance(value, tuple):
                struct.pack_into(f"<{value[0]}", self.data, at, value[1])
            else:
                self._pending.append((at, value))
        return start

    def _align(self, size: int, rest: int) -> None:
        while len(self.data) % size != rest:
            self.data += b"\0"
