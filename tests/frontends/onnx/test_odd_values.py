"""Values that mean nothing: as in ONNX Runtime, or refused with the reason."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.frontends.onnx.models import one
from tests.frontends.onnx.peer import compare
from tilewright.frontends import from_onnx
from tilewright.support.errors import UserError

X = np.ones((2, 3), np.float32)
ML = "ai.onnx.ml"


@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
def test_coordinates_that_are_no_places(mode: str, padding: str) -> None:
    image = np.arange(1, 7, dtype=np.float32).reshape(1, 1, 3, 2)
    odd = [np.nan, np.inf, -np.inf, 1e30, -1e30, 3e38, -1, 0.4]
    grid = np.array([[[[x, y] for x in odd] for y in odd]], np.float32)
    compare("GridSample", [image, grid], domain="", mode=mode, padding_mode=padding)


@pytest.mark.parametrize(
    ("op", "arrays", "attributes", "message"),
    [
        ("BatchNormalization", [X, X[0]], {}, "operand 2|input 2"),
        ("DFT", [np.float32(1)], {"opset": 21}, "no axis beside that"),
        ("STFT", [X[0], np.array(2)], {}, "must be batches of signals"),
        (
            "Expand",
            [X, np.ones(48, np.int64)],
            {},
            "a tensor of 48 dimensions: there are at most 32",
        ),
        ("SVMRegressor", [X], {"domain": ML, "coefficients": [1.0] * 3}, "rho holds no number"),
        (
            "SVMRegressor",
            [X],
            {"domain": ML, "n_supports": -2, "support_vectors": [1.0], "rho": [0.5]},
            "support_vectors holds 1 numbers, which make no -2 rows",
        ),
    ],
)
def test_nodes_that_do_not_fit_say_why(
    op: str, arrays: list[Any], attributes: dict[str, Any], message: str
) -> None:
    """And not what went wrong inside for it."""
    with pytest.raises(UserError, match=message):
        from_onnx(one(op, arrays, **attributes))
