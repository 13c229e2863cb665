"""Losses and determinants against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.graph.harness import check
from tests.graph.interpreted import check_definition
from tilewright.graph import Builder
from tilewright.support.errors import UserError

RNG = np.random.default_rng(13)


def normal(*shape: int, dtype: Any = "f4") -> Any:
    return RNG.standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
def test_nll_loss(reduction: str) -> None:
    x, target = normal(4, 5, 3), RNG.integers(0, 5, (4, 3))
    options = {"reduction": reduction, "rtol": 1e-4}
    check_definition("nll_loss", [x, target], **options)
    check_definition("nll_loss", [x, target, np.abs(normal(5))], ignore_index=2, **options)
    check_definition("nll_loss", [x[..., 0], target[:, 0].astype("i4")], **options)
    outside = np.where(target == 1, -7, target)
    check_definition("nll_loss", [x, outside], ignore_index=-7, symbolic=False, **options)
    check_definition("softmax_cross_entropy", [x, target, np.abs(normal(5))], **options)


def test_natively() -> None:
    x, target = normal(4, 5, 3), RNG.integers(0, 5, (4, 3))
    check("nll_loss", [x, target], ignore_index=1, symbolic=False, rtol=1e-4)
    check("softmax_cross_entropy", [x, target], symbolic=False, rtol=1e-4)


def test_det() -> None:
    check("det", [normal(2, 3, 4, 4)], symbolic=False, rtol=1e-3)
    check_definition("det", [normal(5, 5)], rtol=1e-3)
    singular = np.array([[[1, 2], [2, 4]], [[0, 1], [1, 0]]], "f8")
    check_definition("det", [singular], expected=np.array([0.0, -1.0]), symbolic=False)
    check_definition("det", [normal(2, 3, 3, dtype="f2")], rtol=1e-2, atol=1e-2, symbolic=False)
    check_definition("det", [normal(0, 3, 3)], symbolic=False)
    check_definition("det", [normal(2, 0, 0)], expected=np.ones(2, "f4"), symbolic=False)


def test_what_is_refused() -> None:
    b = Builder()
    x = b.input("x", "f32", (2, 3))
    with pytest.raises(UserError, match="sides of a square differ: 2 and 3"):
        b.det(x)
    with pytest.raises(UserError, match="no reduction 'max'"):
        b.nll_loss(x, np.zeros(2, "i8"), reduction="max")
    with pytest.raises(UserError, match="do not fit scores"):
        b.nll_loss(x, np.zeros((2, 3), "i8"))
