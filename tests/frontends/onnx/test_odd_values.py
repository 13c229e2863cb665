"""Values that mean nothing, on which models still run: as in ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest

from tests.frontends.onnx.peer import compare


@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
def test_coordinates_that_are_no_places(mode: str, padding: str) -> None:
    image = np.arange(1, 7, dtype=np.float32).reshape(1, 1, 3, 2)
    odd = [np.nan, np.inf, -np.inf, 1e30, -1e30, 3e38, -1, 0.4]
    grid = np.array([[[[x, y] for x in odd] for y in odd]], np.float32)
    compare("GridSample", [image, grid], domain="", mode=mode, padding_mode=padding)
