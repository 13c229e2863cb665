"""Pooling against NumPy: padding, dilations, windows that stick out, indices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.graph.harness import check
from tests.graph.interpreted import check_definition
from tilewright.graph import Builder
from tilewright.support.errors import UserError

RNG = np.random.default_rng(8)


def normal(*shape: int, dtype: Any = "f4") -> Any:
    return RNG.standard_normal(shape).astype(dtype)


CASES: list[tuple[tuple[int, ...], dict[str, Any]]] = [
    ((2, 3, 9), {"kernel": [3], "strides": [2], "pads": [1, 0]}),
    ((1, 2, 7, 8), {"kernel": [2, 3]}),
    ((1, 2, 7, 8), {"kernel": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}),
    ((1, 2, 6, 5), {"kernel": [3, 3], "strides": [2, 2], "ceil_mode": True}),
    ((1, 1, 6, 5), {"kernel": [3, 2], "strides": [3, 2], "pads": [1, 1, 1, 0], "ceil_mode": True}),
    ((1, 2, 8, 8), {"kernel": [2, 3], "dilations": [3, 2], "pads": [1, 2, 0, 1]}),
    ((1, 1, 4, 5, 6), {"kernel": [2, 2, 3], "strides": [1, 2, 3], "pads": [1, 0, 0, 0, 1, 1]}),
    ((1, 1, 4, 4), {"kernel": [1, 1], "strides": [3, 3], "ceil_mode": True}),
    ((0, 2, 5, 5), {"kernel": [3, 3]}),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_pooling(case: Any) -> None:
    shape, attrs = case
    x = normal(*shape)
    check_definition("max_pool", [x], **attrs)
    check_definition("avg_pool", [x], **attrs)
    check_definition("avg_pool", [x], count_include_pad=True, **attrs)
    check_definition("lp_pool", [x], **attrs)
    check_definition("lp_pool", [x], p=3, symbolic=False, rtol=1e-4, **attrs)


@pytest.mark.parametrize("case", CASES[:-1], ids=str)
def test_max_pool_with_indices(case: Any) -> None:
    shape, attrs = case
    x = RNG.integers(0, 4, shape).astype("f4")
    check_definition("max_pool", [x], return_indices=True, **attrs)
    check_definition(
        "max_pool", [x], return_indices=True, column_major=True, symbolic=False, **attrs
    )


def test_natively() -> None:
    x = normal(2, 3, 9, 11)
    attrs: Any = {"kernel": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}
    check("max_pool", [x], symbolic=False, **attrs)
    check("max_pool", [x[0]], kernel=[2], strides=[2], return_indices=True, symbolic=False)
    check("avg_pool", [x], symbolic=False, **attrs)
    check("lp_pool", [x], symbolic=False, **attrs)
    check("avg_pool", [x.astype("f2")], symbolic=False, ceil_mode=True, **attrs)


def test_types_and_special_values() -> None:
    special = np.array([[[np.nan, 1, 2, -np.inf, -np.inf, np.inf]]], "f4")
    for options in ({}, {"return_indices": True}):
        check_definition("max_pool", [special], kernel=[2], symbolic=False, **options)
    for dtype in ("int8", "uint8", "float16", "float64"):
        x = RNG.integers(0, 9, (1, 1, 5, 5)).astype(dtype)
        check_definition("max_pool", [x], kernel=[2, 2], pads=[1] * 4, symbolic=False)


def test_global_pooling() -> None:
    x = normal(2, 3, 4, 5)
    check("global_avg_pool", [x], symbolic=False)
    check_definition("global_max_pool", [x])
    check_definition("global_lp_pool", [x])
    check_definition("global_lp_pool", [x], p=3, rtol=1e-4)


def test_what_is_refused() -> None:
    b = Builder()
    x = b.input("x", "f32", ("n", 3, 8, 8))
    with pytest.raises(UserError, match="does not fit 2 spatial axes"):
        b.max_pool(x, kernel=[2])
    with pytest.raises(UserError, match="there is no place for the window"):
        b.avg_pool(x, kernel=[9, 9])
    with pytest.raises(UserError, match="there is no 0-norm"):
        b.lp_pool(x, kernel=[2, 2], p=0)
    with pytest.raises(UserError, match="images have at least three"):
        b.global_avg_pool(b.input("y", "f32", (2, 3)))
