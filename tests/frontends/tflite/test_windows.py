"""Convolutions, pooling, resizing and products of floats, beside NumPy and LiteRT."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.frontends.tflite.cases import Case, Fixed, case, fixed, floats
from tests.frontends.tflite.peer import lite, ours, require_close

SAME, VALID = 0, 1
X = floats(1, 7, 8, 3)


def padded(x: Any, kernel: int, stride: int, dilation: int = 1, value: float = 0) -> Any:
    """An image with "same" padding."""
    pads = [(0, 0)]
    for extent in x.shape[1:3]:
        places = -(-extent // stride)
        total = max((places - 1) * stride + (kernel - 1) * dilation + 1 - extent, 0)
        pads.append((total // 2, total - total // 2))
    return np.pad(x, [*pads, (0, 0)], constant_values=value)


def windows(x: Any, kernel: int, stride: int, dilation: int = 1) -> Any:
    """N×H×W×k×k×C of all windows."""
    reach = (kernel - 1) * dilation + 1
    found = np.lib.stride_tricks.sliding_window_view(x, (reach, reach), (1, 2))
    return found[:, ::stride, ::stride, :, ::dilation, ::dilation].transpose(0, 1, 2, 4, 5, 3)


def conv(x: Any, w: Any, b: Any) -> Any:
    return np.einsum("nhwijc,oijc->nhwo", windows(padded(x, 3, 2), 3, 2), w) + b


def dilated(x: Any, w: Any, b: Any) -> Any:
    return np.einsum("nhwijc,oijc->nhwo", windows(x, 3, 1, 2), w) + b


def depthwise(x: Any, w: Any, b: Any) -> Any:
    parts = windows(padded(x, 3, 1), 3, 1)
    y = np.einsum("nhwijc,ijcm->nhwcm", parts, w.reshape(3, 3, 3, 2))
    return np.maximum(y.reshape(*y.shape[:3], 6) + b, 0)


def transposed(_: Any, w: Any, x: Any) -> Any:
    """Every pixel spreads; what is over is cut off, half of it in front."""
    n, h, wide, _ = x.shape
    y = np.zeros((n, 2 * h + 1, 2 * wide + 1, len(w)), np.float32)
    for i in range(h):
        for j in range(wide):
            y[:, 2 * i : 2 * i + 3, 2 * j : 2 * j + 3] += np.einsum("nc,oijc->nijo", x[:, i, j], w)
    return y[:, :-1, :-1]


def average(x: Any) -> Any:
    total = windows(padded(x, 3, 2), 3, 2).sum((3, 4))
    return total / windows(padded(np.ones_like(x), 3, 2), 3, 2).sum((3, 4))


def greatest(x: Any) -> Any:
    return windows(padded(x, 3, 2, value=-np.inf), 3, 2).max((3, 4))


def volume(x: Any, w: Any) -> Any:
    parts = np.lib.stride_tricks.sliding_window_view(x, (2, 2, 2), (1, 2, 3))
    return np.einsum("ndhwcijk,ijkco->ndhwo", parts, w)


def resized(x: Any, half: bool) -> Any:
    """By linear interpolation along both axes."""
    for axis, size in ((1, 5), (2, 16)):
        extent = x.shape[axis]
        at = np.arange(size) * extent / size
        at = np.maximum((np.arange(size) + 0.5) * extent / size - 0.5, 0) if half else at
        low = np.minimum(np.floor(at).astype(int), extent - 1)
        high = np.minimum(low + 1, extent - 1)
        part = np.expand_dims(at - low, [k for k in range(4) if k != axis])
        x = np.take(x, low, axis) * (1 - part) + np.take(x, high, axis) * part
    return x.astype(np.float32)


def nearest(x: Any, size: tuple[int, int]) -> Any:
    rows, columns = (np.arange(s) * e // s for s, e in zip(size, x.shape[1:3], strict=True))
    return x[:, rows][:, :, columns]


def softmax(x: Any) -> Any:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def lrn(x: Any) -> Any:
    """The kernels leave out the last channel of the window."""
    squares = np.pad(x**2, [(0, 0)] * 3 + [(1, 0)])
    sums = squares[..., :-1] + squares[..., 1:]
    return (x * (1.5 + 0.3 * sums) ** -0.7).astype(np.float32)


STRIDE1: dict[str, Any] = {"stride_w": 1, "stride_h": 1}
STRIDE2: dict[str, Any] = {"stride_w": 2, "stride_h": 2}
POOL: dict[str, Any] = {**STRIDE2, "filter_w": 3, "filter_h": 3}
CASES: dict[str, Case] = {
    "conv": case("CONV_2D", [X, Fixed(floats(5, 3, 3, 3)), Fixed(floats(5))], conv, **STRIDE2),
    "conv_dilated": case(
        "CONV_2D",
        [X, Fixed(floats(5, 3, 3, 3)), Fixed(floats(5))],
        dilated,
        padding=VALID,
        dilation_w=2,
        dilation_h=2,
        **STRIDE1,
    ),
    "depthwise": case(
        "DEPTHWISE_CONV_2D",
        [X, Fixed(floats(1, 3, 3, 6)), Fixed(floats(6))],
        depthwise,
        multiplier=2,
        activation=1,
        **STRIDE1,
    ),
    "transpose_conv": case(
        "TRANSPOSE_CONV",
        [fixed(1, 8, 10, 4), Fixed(floats(4, 3, 3, 3)), floats(1, 4, 5, 3)],
        transposed,
        **STRIDE2,
    ),
    "conv_3d": case(
        "CONV_3D",
        [floats(1, 4, 5, 6, 2), Fixed(floats(2, 2, 2, 2, 3))],
        volume,
        padding=VALID,
        stride_d=1,
        **STRIDE1,
    ),
    "average_pool": case("AVERAGE_POOL_2D", [X], average, **POOL),
    "max_pool": case("MAX_POOL_2D", [X], greatest, **POOL),
    "l2_pool": case("L2_POOL_2D", [X], lambda x: np.sqrt(average(x**2)), **POOL),
    "resize": case("RESIZE_BILINEAR", [X, fixed(5, 16)], lambda x, _: resized(x, False)),
    "resize_half_pixel": case(
        "RESIZE_BILINEAR", [X, fixed(5, 16)], lambda x, _: resized(x, True), half_pixel_centers=True
    ),
    "resize_nearest": case("RESIZE_NEAREST_NEIGHBOR", [X, fixed(14, 12)], nearest),
    "fully_connected": case(
        "FULLY_CONNECTED",
        [floats(2, 3, 4), Fixed(floats(5, 12)), Fixed(floats(5))],
        lambda x, w, b: x.reshape(2, 12) @ w.T + b,
    ),
    "fully_connected_kept": case(
        "FULLY_CONNECTED",
        [floats(2, 3, 4), Fixed(floats(5, 4))],
        lambda x, w: x @ w.T,
        version=5,
        keep_num_dims=True,
    ),
    "batch_matmul": case(
        "BATCH_MATMUL",
        [floats(2, 3, 4), floats(2, 5, 4)],
        lambda a, b: a @ b.transpose(0, 2, 1),
        adj_y=True,
    ),
    "softmax": case("SOFTMAX", [floats(3, 9)], lambda x: softmax(2 * x), beta=2.0),
    "log_softmax": case("LOG_SOFTMAX", [floats(3, 9)], lambda x: np.log(softmax(x))),
    "l2_normalization": case(
        "L2_NORMALIZATION", [X], lambda x: x / np.sqrt((x**2).sum(-1, keepdims=True))
    ),
    "lrn": case("LOCAL_RESPONSE_NORMALIZATION", [X], lrn, radius=1, bias=1.5, alpha=0.3, beta=0.7),
}


@pytest.mark.parametrize("name", CASES)
def test_beside_numpy(name: str) -> None:
    c = CASES[name]
    require_close(ours(c.data, *c.inputs), c.wanted)


@pytest.mark.parametrize("name", CASES)
def test_beside_litert(name: str) -> None:
    c = CASES[name]
    require_close(ours(c.data, *c.inputs), lite(c.data, *c.inputs))


@pytest.mark.parametrize("name", ["conv", "depthwise", "transpose_conv", "average_pool"])
def test_natively(name: str) -> None:
    c = CASES[name]
    require_close(ours(c.data, *c.inputs, native=True), c.wanted)
