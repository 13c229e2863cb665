"""Layers one by one: beside OpenCV's reader where it means the same, else beside NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.frontends.caffe.networks import caffemodel
from tests.frontends.opencv import read_network
from tilewright.frontends import from_caffe
from tilewright.graph import evaluate

RNG = np.random.default_rng(11)


def normal(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def text_of(kind: str, param: str, shapes: list[tuple[int, ...]], tops: int = 1) -> bytes:
    lines = [
        f'input: "x{k}" input_shape {{ {" ".join(f"dim: {n}" for n in s)} }}'
        for k, s in enumerate(shapes)
    ]
    reads = " ".join(f'bottom: "x{k}"' for k in range(len(shapes)))
    makes = " ".join(f'top: "y{k}"' for k in range(tops))
    return "\n".join(
        [*lines, f'layer {{ name: "l" type: "{kind}" {reads} {makes} {param} }}']
    ).encode()


def ours(kind: str, param: str, inputs: list[Any], blobs: list[Any], tops: int = 1) -> list[Any]:
    text = text_of(kind, param, [x.shape for x in inputs], tops)
    return evaluate(from_caffe(text, caffemodel({"l": blobs})), inputs)


# ---- beside OpenCV ------------------------------------------------------------------------------

IMAGE = (2, 6, 9, 8)
#: Type, parameters, shapes of operands, shapes of blobs.
BESIDE: list[tuple[str, str, list[Any], list[Any]]] = [
    ("Convolution", "convolution_param { num_output: 4 kernel_h: 3 kernel_w: 2 pad_h: 1 pad_w: 0 "
     "stride_h: 1 stride_w: 2 dilation: 2 group: 2 }", [IMAGE], [(4, 3, 3, 2), (4,)]),
    ("Deconvolution", "convolution_param { num_output: 4 kernel_size: 4 stride: 2 pad: 1 "
     "bias_term: false }", [IMAGE], [(6, 4, 4, 4)]),
    ("Pooling", "pooling_param { pool: MAX kernel_size: 3 stride: 2 pad: 1 }", [IMAGE], []),
    ("Pooling", "pooling_param { pool: AVE kernel_size: 3 stride: 2 }", [IMAGE], []),
    ("Pooling", "pooling_param { pool: AVE kernel_size: 3 stride: 2 pad: 1 }", [IMAGE], []),
    ("Pooling", "pooling_param { kernel_size: 2 stride: 2 ceil_mode: false }", [IMAGE], []),
    ("InnerProduct", "inner_product_param { num_output: 5 axis: 1 }", [IMAGE], [(5, 432), (5,)]),
    ("ReLU", "relu_param { negative_slope: 0.2 }", [IMAGE], []),
    ("PReLU", "", [IMAGE], [(6,)]),
    ("ELU", "", [IMAGE], []),
    ("Sigmoid", "", [IMAGE], []),
    ("TanH", "", [IMAGE], []),
    ("AbsVal", "", [IMAGE], []),
    ("BNLL", "", [IMAGE], []),
    ("Power", "power_param { power: 3 scale: 0.5 shift: 1.5 }", [IMAGE], []),
    ("Exp", "exp_param { base: 2 scale: 0.5 shift: 0.1 }", [IMAGE], []),
    ("LRN", "lrn_param { local_size: 3 alpha: 0.5 beta: 0.6 }", [IMAGE], []),
    ("LRN", "lrn_param { local_size: 3 alpha: 0.5 norm_region: WITHIN_CHANNEL }", [IMAGE], []),
    ("Scale", "scale_param { bias_term: true }", [IMAGE], [(6,), (6,)]),
    ("Eltwise", "eltwise_param { operation: SUM coeff: 0.5 coeff: -2 }", [IMAGE, IMAGE], []),
    ("Eltwise", "eltwise_param { operation: PROD }", [IMAGE, IMAGE], []),
    ("Eltwise", "eltwise_param { operation: MAX }", [IMAGE, IMAGE, IMAGE], []),
    ("Concat", "concat_param { axis: 2 }", [IMAGE, (2, 6, 3, 8)], []),
    ("Softmax", "", [IMAGE], []),
    ("Flatten", "flatten_param { axis: 1 end_axis: 2 }", [IMAGE], []),
    ("Reshape", "reshape_param { shape { dim: 0 dim: 3 dim: -1 } }", [IMAGE], []),
    ("Permute", "permute_param { order: 0 order: 2 order: 3 order: 1 }", [IMAGE], []),
    ("Crop", "crop_param { axis: 2 offset: 1 offset: 2 }", [IMAGE, (2, 6, 5, 4)], []),
    ("Interp", "interp_param { zoom_factor: 2 }", [IMAGE], []),
    ("Interp", "interp_param { height: 5 width: 20 }", [IMAGE], []),
    ("Normalize", "norm_param { across_spatial: false channel_shared: false }", [IMAGE], [(6,)]),
    ("ShuffleChannel", "shuffle_channel_param { group: 3 }", [IMAGE], []),
    ("MVN", "mvn_param { across_channels: true }", [IMAGE], []),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "param", "shapes", "blobs"), BESIDE)
def test_beside_opencv(kind: str, param: str, shapes: list[Any], blobs: list[Any]) -> None:
    inputs, weights = [normal(*s) for s in shapes], [normal(*s) for s in blobs]
    net = read_network("Caffe", text_of(kind, param, shapes), caffemodel({"l": weights}))
    for k, value in enumerate(inputs):
        net.setInput(value, f"x{k}")
    wanted = net.forward()
    (found,) = ours(kind, param, inputs, weights)
    np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-4)


# ---- beside NumPy -------------------------------------------------------------------------------

X, Y = normal(2, 3, 4, 5), normal(2, 3, 4, 5)
W, V = normal(3), normal(4, 5)


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def batch_norm(x: Any, mean: Any, variance: Any, total: Any) -> Any:
    m, v = (a[:, None, None] / total for a in (mean, variance))
    return (x - m) / np.sqrt(v + 1e-5)


def lstm(x: Any, cont: Any, w: Any, bias: Any, r: Any) -> Any:
    h = c = np.zeros((x.shape[1], r.shape[1]))
    made = []
    for xt, mark in zip(x, cont[:, :, None], strict=True):
        i, f, o, g = np.split(xt @ w.T + bias + (h * mark) @ r.T, 4, 1)
        c = mark * sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        made.append(h)
    return np.stack(made)


def rnn(x: Any, cont: Any, w: Any, bias: Any, r: Any, wo: Any, bo: Any) -> Any:
    h = np.zeros((x.shape[1], r.shape[1]))
    made = []
    for xt, mark in zip(x, cont[:, :, None], strict=True):
        h = np.tanh(xt @ w.T + bias + (h * mark) @ r.T)
        made.append(np.tanh(h @ wo.T + bo))
    return np.stack(made)


MARKS = np.array([[0, 0], [1, 1], [1, 0], [1, 1]], np.float32)
STEPS = normal(4, 2, 3)
WORDS = np.array([[0.0, 3], [2, 1]], np.float32)
Z = normal(1, 2, 7, 9)

#: Type, parameters, operands, blobs, and what comes out.
CASES: list[tuple[str, str, list[Any], list[Any], Callable[..., Any]]] = [
    ("BatchNorm", "", [X], [W, W * W + 1, np.array([3.0])], batch_norm),
    ("BatchNorm", "batch_norm_param { use_global_stats: false }", [X], [],
     lambda x: (x - x.mean((0, 2, 3), keepdims=True))
     / np.sqrt(x.var((0, 2, 3), keepdims=True) + 1e-5)),
    ("Scale", "scale_param { axis: 0 }", [X, W[None].repeat(2, 0)], [],
     lambda x, s: x * s[:, :, None, None]),
    ("Scale", "scale_param { axis: 2 num_axes: 2 }", [X], [V], lambda x, v: x * v),
    ("Bias", "", [X], [W], lambda x, w: x + w[:, None, None]),
    ("Log", "log_param { base: 10 scale: 2 shift: 30 }", [X], [], lambda x: np.log10(2 * x + 30)),
    ("Exp", "", [X], [], np.exp),
    ("ReLU6", "", [X * 5], [], lambda x: np.clip(x, 0, 6)),
    ("Clip", "clip_param { min: -0.5 max: 0.5 }", [X], [], lambda x: np.clip(x, -0.5, 0.5)),
    ("Swish", "swish_param { beta: 2 }", [X], [], lambda x: x * sigmoid(2 * x)),
    ("Threshold", "threshold_param { threshold: 0.3 }", [X], [], lambda x: x > 0.3),
    ("PReLU", "prelu_param { channel_shared: true }", [X], [W[:1]],
     lambda x, w: np.where(x > 0, x, w * x)),
    ("Dropout", "", [X], [], lambda x: x),
    ("Axpy", "", [W[None].repeat(2, 0)[..., None, None], X, Y], [], lambda a, x, y: a * x + y),
    ("Tile", "tile_param { axis: 2 tiles: 3 }", [X], [], lambda x: np.tile(x, (1, 1, 3, 1))),
    ("Reduction", "reduction_param { operation: ASUM axis: 2 coeff: 0.5 }", [X], [],
     lambda x: 0.5 * np.abs(x).sum((2, 3))),
    ("Reduction", "reduction_param { operation: SUMSQ axis: -1 }", [X], [],
     lambda x: (x * x).sum(-1)),
    ("Reduction", "reduction_param { operation: MEAN axis: 1 }", [X], [],
     lambda x: x.mean((1, 2, 3))),
    ("ArgMax", "argmax_param { axis: 1 }", [X], [], lambda x: x.argmax(1)[:, None]),
    ("ArgMax", "argmax_param { out_max_val: true }", [X], [],
     lambda x: np.stack([x.reshape(2, -1).argmax(1), x.reshape(2, -1).max(1)], 1)[..., None]),
    ("Embed", "embed_param { input_dim: 4 num_output: 5 }", [WORDS],
     [V, V[0]], lambda i, t, bias: t[i.astype(int)] + bias),
    ("InnerProduct", "inner_product_param { num_output: 4 axis: 3 transpose: true "
     "bias_term: false }", [X], [V.T], lambda x, w: x @ w),
    ("LRN", "lrn_param { local_size: 1 alpha: 0.5 beta: 0.6 k: 2 }", [X], [],
     lambda x: x / (2 + 0.5 * x * x) ** 0.6),
    ("Reshape", "reshape_param { axis: 1 num_axes: 2 shape { dim: 2 dim: 6 } }", [X], [],
     lambda x: x.reshape(2, 2, 6, 5)),
    ("Upsample", "upsample_param { scale: 2 }", [X], [],
     lambda x: x.repeat(2, 2).repeat(2, 3)),
    ("Normalize", "norm_param { }", [X], [W[:1]],
     lambda x, w: w * x / np.sqrt((x * x).sum((1, 2, 3), keepdims=True))),
    ("Interp", "interp_param { shrink_factor: 2 pad_beg: -1 pad_end: -1 }", [Z], [],
     lambda z: z[:, :, 1:-1:2, 1:-1:2]),
    ("LSTM", "recurrent_param { num_output: 2 }", [STEPS, MARKS],
     [normal(8, 3), normal(8), normal(8, 2)], lstm),
    ("RNN", "recurrent_param { num_output: 2 }", [STEPS, MARKS],
     [normal(2, 3), normal(2), normal(2, 2), normal(2, 2), normal(2)], rnn),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "param", "inputs", "blobs", "wanted"), CASES)
def test_beside_numpy(kind: str, param: str, inputs: Any, blobs: Any, wanted: Any) -> None:
    (found,) = ours(kind, param, inputs, blobs)
    np.testing.assert_allclose(found, wanted(*inputs, *blobs), rtol=1e-4, atol=1e-5)


def test_slices() -> None:
    found = ours("Slice", "slice_param { axis: 2 slice_point: 1 slice_point: 3 }", [X], [], 3)
    for f, w in zip(found, np.split(X, [1, 3], 2), strict=True):
        np.testing.assert_array_equal(f, w)
    halves = ours("Slice", "slice_param { slice_dim: 0 }", [X], [], 2)
    np.testing.assert_array_equal(halves[1], X[1:])


def test_maxima_go_back_where_they_were() -> None:
    """SegNet: pooling tells where its maxima were, and Upsample puts them there."""
    text = b"""input: "x" input_shape { dim: 2 dim: 3 dim: 4 dim: 6 }
    layer { name: "p" type: "Pooling" bottom: "x" top: "p" top: "mask"
            pooling_param { kernel_size: 2 stride: 2 } }
    layer { name: "u" type: "Upsample" bottom: "p" bottom: "mask" top: "u" }"""
    x = normal(2, 3, 4, 6)
    (found,) = evaluate(from_caffe(text), [x])
    tiles = x.reshape(2, 3, 2, 2, 3, 2).max((3, 5)).repeat(2, 2).repeat(2, 3)
    np.testing.assert_array_equal(found, np.where(tiles == x, x, 0))


def test_regions() -> None:
    x = normal(1, 2, 6, 6)
    regions = np.array([[0, 0, 0, 3, 3], [0, 2, 2, 5, 5]], np.float32)
    param = "roi_pooling_param { pooled_h: 2 pooled_w: 2 spatial_scale: 1 }"
    (found,) = ours("ROIPooling", param, [x, regions], [])
    first = x[:, :, :4, :4].reshape(1, 2, 2, 2, 2, 2).max((3, 5))[0]
    np.testing.assert_array_equal(found[0], first)
    assert found.shape == (2, 2, 2, 2)


def test_silence_is_no_output() -> None:
    text = b"""input: "x" input_shape { dim: 2 }
    layer { name: "a" type: "Split" bottom: "x" top: "a" top: "b" }
    layer { name: "s" type: "Silence" bottom: "a" }
    layer { name: "t" type: "TanH" bottom: "b" top: "t" }"""
    assert [r.name for r in from_caffe(text).main.results] == ["t"]
