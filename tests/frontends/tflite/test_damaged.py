"""Damaged files: each gives an answer or one clear error, in bounded time and memory."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from tests.frontends.tflite.seeds import network
from tests.frontends.tflite.writer import Writer, file_of
from tilewright.frontends.tflite import from_tflite
from tilewright.support.errors import UserError


def test_every_length() -> None:
    data = file_of(network())
    for length in range(8, len(data) - 1, 37):
        with pytest.raises(UserError):
            from_tflite(data[:length])


def test_operators_that_nobody_knows_are_told_at_once() -> None:
    w = Writer()
    x = w.input("float32", [2])
    y = w.op("MyOwn", [x], w.tensor("float32", [2]))
    y = w.op("LSH_PROJECTION", [y], w.tensor("float32", [2]))
    with pytest.raises(UserError, match="2 of them") as error:
        from_tflite(w.model([y]))
    assert "custom operator MyOwn" in str(error.value)
    assert "LSH_PROJECTION" in str(error.value)


def test_subgraphs_that_call_themselves() -> None:
    w = Writer()
    x = w.input("float32", [2])
    data = w.model([w.op("CALL", [x], w.tensor("float32", [2]), subgraph=0)])
    with pytest.raises(UserError, match="nested more than"):
        from_tflite(data)


def test_shared_parts_are_not_read_without_end() -> None:
    """A few tables, used by each other very often."""
    w = Writer()
    x = w.input("float32", [2])
    w.graph([w.op("NEG", [x], w.tensor("float32", [2]))])
    data = w.model(main=0)
    grown = bytearray(data)
    # The root's vector of subgraphs becomes one that names the same subgraph very often.
    count = 1 << 18
    root = struct.unpack_from("<I", grown, 0)[0]
    vtable = root - struct.unpack_from("<i", grown, root)[0]
    field = root + struct.unpack_from("<H", grown, vtable + 4 + 2 * 2)[0]
    vector = field + struct.unpack_from("<I", grown, field)[0]
    table = vector + 4 + struct.unpack_from("<I", grown, vector + 4)[0]
    # Distances are from each place: they must not be negative, so the table is put behind.
    start = len(grown)
    places = np.arange(count, dtype=np.int64) * 4 + start + 4
    end = start + 4 + 4 * count
    grown += struct.pack("<I", count) + (end - places).astype("<u4").tobytes()
    body = struct.unpack_from("<i", grown, table)[0]
    size = struct.unpack_from("<H", grown, table - body + 2)[0]
    grown += struct.pack("<i", end - (table - body)) + bytes(size - 4)
    struct.pack_into("<I", grown, field, start - field)
    with pytest.raises(UserError, match="used more often"):
        from_tflite(bytes(grown))
