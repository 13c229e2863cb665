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


@pytest.mark.parametrize(
    ("extents", "window"),
    [
        ((1, 5), {"kernel_shape": [2, 2], "strides": [2, 2]}),
        ((2, 7), {"kernel_shape": [3, 4], "strides": [2, 3], "ceil_mode": 1}),
        ((1, 1), {"kernel_shape": [4, 4], "strides": [3, 4], "pads": [1, 1, 1, 1]}),
        ((1, 4), {"kernel_shape": [3, 2], "strides": [4, 3], "auto_pad": "VALID"}),
    ],
)
@pytest.mark.parametrize(
    ("op", "attributes"),
    [
        ("MaxPool", {"count": 2}),
        ("AveragePool", {}),
        ("LpPool", {"p": 3}),
    ],
)
def test_windows_larger_than_the_image(
    op: str, attributes: dict[str, Any], extents: tuple[int, int], window: dict[str, Any]
) -> None:
    """ONNX Runtime clips a window that is larger than the image by less than its stride."""
    if op == "LpPool":
        window = {k: v for k, v in window.items() if k != "ceil_mode"}
    image = np.random.default_rng(0).standard_normal((2, 3, *extents)).astype(np.float32)
    compare(op, [image], domain="", **attributes, **window)


def test_dilated_windows_larger_than_the_image() -> None:
    image = np.random.default_rng(0).standard_normal((1, 2, 3, 8)).astype(np.float32)
    window: dict[str, Any] = {"kernel_shape": [2, 2], "dilations": [3, 2], "strides": [2, 2]}
    compare("MaxPool", [image], domain="", count=2, **window)


@pytest.mark.parametrize(
    ("op", "window"),
    [
        # ONNX Runtime makes something empty of what lacks a whole stride.
        ("MaxPool", {"kernel_shape": [2], "strides": [1]}),
        ("AveragePool", {"kernel_shape": [3], "strides": [2]}),
        ("MaxPool", {"kernel_shape": [4], "strides": [2]}),
        # What it divides by depends on the version of the operator.
        ("AveragePool", {"kernel_shape": [2], "strides": [2], "count_include_pad": 1}),
    ],
)
def test_windows_that_have_no_clear_answer_are_refused(op: str, window: dict[str, Any]) -> None:
    with pytest.raises(UserError, match="no place for the window"):
        from_onnx(one(op, [np.ones((1, 1, 1), np.float32)], **window))
