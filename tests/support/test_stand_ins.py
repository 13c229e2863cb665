from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tilewright.support.stand_ins import filled, is_kept, stand_in


@pytest.mark.parametrize(
    ("array", "kept"),
    [
        (np.array([2, -1], np.int64), True),
        (np.arange(9), False),
        (np.array(True), True),
        (np.array([3], np.uint8), True),
        (np.array([3, 4], np.int8), False),
        (np.array(0.5, np.float32), False),
        (np.ones((4, 4), np.float32), True),
        (np.zeros(100, ml_dtypes.bfloat16), True),
        (np.full(4, 2.0, np.float16), False),
        (np.array(["word"], object), False),
        (np.empty((0, 3), np.float32), True),
    ],
)
def test_what_tells_nothing_is_kept(array: Any, kept: bool) -> None:
    assert is_kept(array) == kept
    other = stand_in(array, "w", "random")
    assert (other is array) == kept
    assert other.dtype == array.dtype and other.shape == array.shape


@pytest.mark.parametrize(
    "dtype", ["float32", "float16", "int8", "uint64", "bool", "bfloat16", "float8_e4m3fn", "int4"]
)
def test_all_types_have_stand_ins(dtype: str) -> None:
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    for filling in ("random", "zeros"):
        made = filled(kind, (3, 4), "w", filling)
        assert made.dtype == kind and made.shape == (3, 4)
    np.testing.assert_array_equal(
        filled(kind, (3, 4), "w", "random"), filled(kind, (3, 4), "w", "random")
    )


def test_names_tell_random_arrays_apart() -> None:
    one, other = (filled(np.dtype("f4"), (8,), name, "random") for name in "vw")
    assert not np.array_equal(one, other)
