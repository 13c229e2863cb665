"""Shifts and bits seen as other types."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.graph.harness import check
from tilewright.graph import Builder
from tilewright.support.errors import UserError


@pytest.mark.parametrize("dtype", ["int8", "uint16", "int32", "uint32", "int64", "uint64"])
def test_shifts_by_any_count(dtype: str) -> None:
    info = np.iinfo(dtype)
    x = np.array([info.min, info.max, 1, 5, 100], dtype)[:, None]
    counts = np.array([0, 1, 3, info.bits - 1, info.bits, 100 if info.min == 0 else -1], dtype)
    check("left_shift", [x, counts], symbolic=False)
    check("right_shift", [x, counts], symbolic=False)


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("float32", "int32"),
        ("int64", "float64"),
        ("uint16", "float16"),
        ("int16", ml_dtypes.bfloat16),
        (ml_dtypes.float8_e4m3fn, "int8"),
        ("bool", "uint8"),
    ],
)
def test_bits_seen_as_another_type(source: Any, target: Any) -> None:
    raw = np.random.default_rng(1).integers(0, 2, 64, np.uint8)
    x = raw.view(np.bool_) if source == "bool" else (raw * 91).view(source)
    want = (x.view(np.uint8) if source == "bool" else x).view(target)
    got = check("bitcast", [x], dtype=np.dtype(target), symbolic=False)
    np.testing.assert_array_equal(got[0].view(np.uint8), want.view(np.uint8))


def test_widths_must_be_equal() -> None:
    b = Builder("main")
    with pytest.raises(UserError, match="widths of the elements must be equal"):
        b.bitcast(b.input("x", "f32", (4,)), dtype="f64")
