"""Operators beside NumPy, written from MXNet's documentation; `test_beside_mxnet.py` has more."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.frontends.mxnet.networks import Net
from tilewright.frontends import from_mxnet
from tilewright.graph import evaluate

RNG = np.random.default_rng(5)


def normal(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def run(op: str, inputs: list[Any], attrs: dict[str, Any], outputs: int = 1) -> list[Any]:
    net = Net()
    names = [net.var(f"x{k}") for k in range(len(inputs))]
    node = net.node(op, *names, **attrs)
    text, _ = net.files(*((node, k) for k in range(outputs)))
    shapes = {f"x{k}": list(x.shape) for k, x in enumerate(inputs)}
    return evaluate(from_mxnet(text, None, shapes), list(inputs))


def softmax(x: Any, axis: int) -> Any:
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


X, Y = normal(2, 3, 4), normal(2, 3, 4)
ROW = normal(1, 3, 1)
IMAGE = normal(2, 4, 6, 5)
W4, B4 = normal(4), normal(4)
STEPS, LENGTHS = normal(4, 3, 2), np.array([1, 4, 2], np.float32)

CASES: list[tuple[str, list[Any], dict[str, Any], Any]] = [
    ("broadcast_sub", [X, ROW], {}, lambda x, y: x - y),
    ("elemwise_mul", [X, Y], {}, lambda x, y: x * y),
    ("_Plus", [X, Y], {}, lambda x, y: x + y),
    ("broadcast_lesser", [X, ROW], {}, lambda x, y: (x < y).astype(np.float32)),
    ("broadcast_hypot", [X, ROW], {}, np.hypot),
    ("broadcast_logical_xor", [X, ROW], {}, lambda x, y: np.logical_xor(x, y)),
    ("_rminus_scalar", [X], {"scalar": 2}, lambda x: 2 - x),
    ("_RDivScalar", [X], {"scalar": 2.5}, lambda x: 2.5 / x),
    ("_power_scalar", [np.abs(X)], {"scalar": "1.5"}, lambda x: x**1.5),
    ("_greater_scalar", [X], {"scalar": 0.1}, lambda x: x > 0.1),
    ("_mod_scalar", [X], {"scalar": 0.7}, lambda x: np.mod(x, np.float32(0.7))),
    ("round", [np.array([-1.5, 1.5, 2.1], np.float32)], {}, lambda _: [-2, 2, 2]),
    ("rint", [np.array([-1.5, 1.5, -1.9], np.float32)], {}, lambda _: [-2, 1, -2]),
    ("clip", [X], {"a_min": -0.5, "a_max": 0.5}, lambda x: np.clip(x, -0.5, 0.5)),
    ("Activation", [X], {"act_type": "softrelu"}, lambda x: np.log1p(np.exp(x))),
    ("LeakyReLU", [X], {}, lambda x: np.where(x > 0, x, 0.25 * x)),
    ("LeakyReLU", [IMAGE, W4], {"act_type": "prelu"},
     lambda x, w: np.where(x > 0, x, w[:, None, None] * x)),
    ("add_n", [X, Y, X], {"num_args": 3}, lambda x, y, z: x + y + z),
    ("where", [np.array([0, 1], np.float32), X, Y], {},
     lambda c, x, y: np.where(c[:, None, None] != 0, x, y)),
    ("Reshape", [X], {"shape": "(0, -1)"}, lambda x: x.reshape(2, 12)),
    ("Reshape", [X], {"shape": "(-3, -2)"}, lambda x: x.reshape(6, 4)),
    ("Reshape", [X], {"shape": "(0, 0, -4, 2, -1)"}, lambda x: x.reshape(2, 3, 2, 2)),
    ("Reshape", [X], {"shape": "(-1, 0)", "reverse": True}, lambda x: x.reshape(6, 4)),
    ("Reshape", [X], {"target_shape": "(0, 12)"}, lambda x: x.reshape(2, 12)),
    ("SwapAxis", [X], {"dim1": 0, "dim2": 2}, lambda x: x.swapaxes(0, 2)),
    ("transpose", [X], {"axes": "()"}, lambda x: x.transpose()),
    ("slice", [X], {"begin": "(None, 2)", "end": "(None, 0)", "step": "(1, -1)"},
     lambda x: x[:, 2:0:-1]),
    ("slice_axis", [X], {"axis": -1, "begin": -2, "end": "None"}, lambda x: x[..., -2:]),
    ("slice_like", [X, X[:1, :2]], {"axes": "(0, 1)"}, lambda x, _: x[:1, :2]),
    ("Concat", [X, Y], {"dim": 2}, lambda x, y: np.concatenate([x, y], 2)),
    ("stack", [X, Y], {"axis": 1}, lambda x, y: np.stack([x, y], 1)),
    ("broadcast_to", [ROW], {"shape": "(2, 0, 4)"}, lambda x: np.broadcast_to(x, (2, 3, 4))),
    ("tile", [X], {"reps": "(2, 1)"}, lambda x: np.tile(x, (2, 1))),
    ("repeat", [X], {"repeats": 2}, lambda x: np.repeat(x, 2)),
    ("Pad", [IMAGE], {"mode": "reflect", "pad_width": "(0, 0, 0, 0, 1, 2, 3, 1)"},
     lambda x: np.pad(x, ((0, 0), (0, 0), (1, 2), (3, 1)), "reflect")),
    ("sum", [X], {"axis": "(1,)", "exclude": True}, lambda x: x.sum((0, 2))),
    ("max", [X], {}, lambda x: x.max().reshape(1)),
    ("mean", [X], {"axis": "[0, 2]", "keepdims": 1}, lambda x: x.mean((0, 2), keepdims=True)),
    ("norm", [X], {"axis": 1}, lambda x: np.sqrt((x * x).sum(1))),
    ("argmax", [X], {"axis": 1}, lambda x: x.argmax(1).astype(np.float32)),
    ("sort", [X], {"axis": 0, "is_ascend": False}, lambda x: -np.sort(-x, 0)),
    ("argsort", [X], {}, lambda x: x.argsort(-1)),
    ("topk", [X], {"k": 2, "ret_typ": "value"}, lambda x: -np.sort(-x, -1)[..., :2]),
    ("dot", [X, normal(4, 5)], {}, lambda x, y: x @ y),
    ("batch_dot", [X, Y], {"transpose_b": True}, lambda x, y: x @ y.swapaxes(1, 2)),
    ("take", [X, np.array([-1, 5], np.float32)], {"axis": 1, "mode": "wrap"},
     lambda x, i: x[:, [2, 2]]),
    ("pick", [X, np.array([[0, 9, 1], [2, 0, -3]], np.float32)], {},
     lambda x, i: np.take_along_axis(x, np.clip(i, 0, 3).astype(int)[..., None], 2)[..., 0]),
    ("gather_nd", [X, np.array([[0, 1], [2, 0]], np.float32)], {}, lambda x, i: x[[0, 1], [2, 0]]),
    ("one_hot", [np.array([0, 2, 5], np.float32)], {"depth": 3, "on_value": 2.0},
     lambda _: [[2, 0, 0], [0, 0, 2], [0, 0, 0]]),
    ("Embedding", [np.array([0, 8], np.float32), normal(3, 4)], {"input_dim": 3, "output_dim": 4},
     lambda i, w: w[[0, 2]]),
    ("softmax", [X], {"axis": 1, "temperature": 2.0}, lambda x: softmax(x / 2, 1)),
    ("softmin", [X], {}, lambda x: softmax(-x, -1)),
    ("SoftmaxActivation", [IMAGE], {"mode": "channel"}, lambda x: softmax(x, 1)),
    ("L2Normalization", [IMAGE], {"mode": "spatial"},
     lambda x: x / np.sqrt((x * x).sum((2, 3), keepdims=True))),
    ("LRN", [IMAGE], {"nsize": 1, "alpha": 0.5, "knorm": 1.5},
     lambda x: x / (1.5 + 0.5 * x * x) ** 0.75),
    ("LayerNorm", [X, W4, B4], {},
     lambda x, w, b: (x - x.mean(-1, keepdims=True))
     / np.sqrt(x.var(-1, keepdims=True) + 1e-5) * w + b),
    ("InstanceNorm", [IMAGE, W4, B4], {"eps": 1e-5},
     lambda x, w, b: (x - x.mean((2, 3), keepdims=True))
     / np.sqrt(x.var((2, 3), keepdims=True) + 1e-5) * w[:, None, None] + b[:, None, None]),
    ("Pooling", [IMAGE], {"kernel": "(2, 2)", "pool_type": "sum", "stride": "(2, 1)"},
     lambda x: (x[..., :-1] + x[..., 1:]).reshape(2, 4, 3, 2, 4).sum(3)),
    ("Pooling", [IMAGE], {"global_pool": True, "kernel": "(1, 1)", "pool_type": "avg"},
     lambda x: x.mean((2, 3), keepdims=True)),
    ("Pooling", [IMAGE[..., 0]], {"kernel": "(3,)", "stride": "(2,)", "pooling_convention": "same"},
     lambda x: np.stack([x[..., k : k + 3].max(-1) for k in (0, 2, 4)], -1)),
    ("UpSampling", [IMAGE], {"scale": 2, "sample_type": "nearest", "num_args": 1},
     lambda x: x.repeat(2, 2).repeat(2, 3)),
    ("Deconvolution", [IMAGE, normal(4, 3, 2, 2)],
     {"kernel": "(2, 2)", "stride": "(2, 2)", "num_filter": 3, "target_shape": "(12, 10)"},
     lambda x, w: np.einsum("nchw,cokl->nohkwl", x, w).reshape(2, 3, 12, 10)),
    ("_contrib_AdaptiveAvgPooling2D", [IMAGE], {"output_size": "(3, 1)"},
     lambda x: x.reshape(2, 4, 3, 2, 5).mean((3, 4))[..., None]),
    ("SequenceMask", [STEPS, LENGTHS], {"use_sequence_length": True, "value": -1},
     lambda x, n: np.where(np.arange(4)[:, None, None] < n[:, None], x, -1)),
    ("SequenceLast", [STEPS, LENGTHS], {"use_sequence_length": True},
     lambda x, n: x[n.astype(int) - 1, np.arange(3)]),
    ("SequenceReverse", [STEPS], {}, lambda x: x[::-1]),
    ("shape_array", [X], {}, lambda _: [2, 3, 4]),
]  # fmt: skip


@pytest.mark.parametrize(("op", "inputs", "attrs", "wanted"), CASES)
def test_operator(op: str, inputs: list[Any], attrs: dict[str, Any], wanted: Any) -> None:
    (found,) = run(op, inputs, attrs)
    expected = np.asarray(wanted(*inputs))
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_split() -> None:
    found = run("SliceChannel", [X], {"num_outputs": 3, "squeeze_axis": True}, 3)
    for k in range(3):
        np.testing.assert_array_equal(found[k], X[:, k])
    parts = run("_split_v2", [X], {"indices": "(0, 1, 3)", "axis": 2}, 3)
    assert [p.shape[2] for p in parts] == [1, 2, 1]


BOXES = np.array(
    [
        [0, 0.5, 0.1, 0.1, 0.2, 0.2],
        [1, 0.4, 0.1, 0.1, 0.2, 0.2],
        [0, 0.3, 0.1, 0.1, 0.14, 0.14],
        [2, 0.6, 0.5, 0.5, 0.7, 0.8],
    ],
    np.float32,
)


@pytest.mark.parametrize(("force", "kept"), [(True, [3, 0]), (False, [3, 0, 1])])
def test_box_nms(force: bool, kept: list[int]) -> None:
    """The example of MXNet's documentation, for all boxes and for each class by itself."""
    attrs = {"overlap_thresh": 0.1, "coord_start": 2, "score_index": 1, "id_index": 0}
    (found,) = run("_contrib_box_nms", [BOXES], {**attrs, "force_suppress": force})
    np.testing.assert_allclose(found[: len(kept)], BOXES[kept], rtol=1e-6)
    assert (found[len(kept) :] == -1).all()


@pytest.mark.parametrize("form", ["center", "corner"])
def test_box_decode(form: str) -> None:
    moves, anchors = normal(2, 4, 4), BOXES[None, :, 2:]
    attrs = {"std0": 0.1, "std1": 0.2, "std2": 0.3, "clip": 0.2, "format": form}
    (found,) = run("_contrib_box_decode", [moves, anchors], attrs)
    low, high = anchors[..., :2], anchors[..., 2:]
    centre, size = (low, high) if form == "center" else ((low + high) / 2, high - low)
    centre = centre + moves[..., :2] * np.array([0.1, 0.2]) * size
    half = np.exp(np.minimum(moves[..., 2:] * np.array([0.3, 1.0]), 0.2)) * size / 2
    wanted = np.concatenate([centre - half, centre + half], -1)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def test_multi_box() -> None:
    """Anchors, and what is found among them: the best of those that overlap."""
    (anchors,) = run("_contrib_MultiBoxPrior", [IMAGE], {"sizes": "(0.4, 0.2)", "ratios": "(1, 4)"})
    assert anchors.shape == (1, 6 * 5 * 3, 4)
    centre = np.array([0.5 / 5, 0.5 / 6])
    half = np.array([[0.4 * 6 / 5, 0.4], [0.2 * 6 / 5, 0.2], [0.4 * 6 / 5 * 2, 0.2]]) / 2
    np.testing.assert_allclose(anchors[0, :3, :2], centre - half, rtol=1e-5, atol=1e-6)
    scores = np.array([[[0.1, 0.2, 0.3], [0.9, 0.8, 0.1], [0.0, 0.0, 0.6]]], np.float32)
    boxes = np.array(
        [[[0.1, 0.1, 0.5, 0.5], [0.1, 0.1, 0.5, 0.4], [0.1, 0.1, 0.5, 0.5]]], np.float32
    )
    inputs = [scores, np.zeros((1, 12), np.float32), boxes]
    (found,) = run("_contrib_MultiBoxDetection", inputs, {})
    np.testing.assert_allclose(found[0, :, 0], [0, -1, 1])
    np.testing.assert_allclose(found[0, :, 1], [0.9, 0.8, 0.6])
    np.testing.assert_allclose(found[0, :, 2:], boxes[0], rtol=1e-5)


def gates(x: Any, h: Any, weights: list[Any]) -> list[Any]:
    w, r, bw, br = weights
    return [np.split(x @ w.T + bw, len(w) // 3, 1), np.split(h @ r.T + br, len(w) // 3, 1)]


@pytest.mark.parametrize("mode", ["lstm", "gru", "rnn_tanh"])
def test_recurrent(mode: str) -> None:
    """One layer of three cells; gates as cuDNN has them."""
    count = {"lstm": 4, "gru": 3, "rnn_tanh": 1}[mode]
    weights = [normal(3 * count, 2), normal(3 * count, 3), normal(3 * count), normal(3 * count)]
    net = Net()
    x, states = net.var("x"), [net.var("h"), *([net.var("c")] if mode == "lstm" else [])]
    # As Gluon exports them: each is flattened, and all are put together.
    parts = [net.node("Reshape", net.var(f"w{k}", w), shape="(-1,)") for k, w in enumerate(weights)]
    flat = net.node("_rnn_param_concat", *parts, dim=0)
    node = net.node("RNN", x, flat, *states, mode=mode, state_size=3, num_layers=1)
    data = {"x": normal(4, 2, 2), "h": normal(1, 2, 3)} | (
        {"c": normal(1, 2, 3)} if count == 4 else {}
    )
    shapes = {k: list(v.shape) for k, v in data.items()}
    (found,) = evaluate(from_mxnet(*net.files(node), shapes), data)

    def sigmoid(v: Any) -> Any:
        return 1 / (1 + np.exp(-v))

    h, c = data["h"][0], data.get("c", np.zeros((1, 2, 3)))[0]
    for step, y in zip(data["x"], found, strict=True):
        a, b = gates(step, h, weights)
        if mode == "lstm":
            i, f, g, o = (p + q for p, q in zip(a, b, strict=True))
            c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
            h = sigmoid(o) * np.tanh(c)
        elif mode == "gru":
            r, z = sigmoid(a[0] + b[0]), sigmoid(a[1] + b[1])
            h = (1 - z) * np.tanh(a[2] + r * b[2]) + z * h
        else:
            h = np.tanh(a[0] + b[0])
        np.testing.assert_allclose(y, h, rtol=1e-4, atol=1e-5)


def test_foreach() -> None:
    """A running sum, with each step times a value from outside."""
    inner = Net()
    x, s, w = inner.var("x"), inner.var("s"), inner.var("w")
    total = inner.node("elemwise_add", x, s)
    body = inner.graph(inner.node("elemwise_mul", total, w), total)
    net = Net()
    operands = [net.var("data"), net.var("start"), net.var("factor")]
    places = {"in_data_locs": "(0,)", "in_state_locs": "(1,)", "remain_locs": "(2,)"}
    node = net.node("_foreach", *operands, subgraphs=[body], num_out_data=1, **places)
    text, _ = net.files((node, 0), (node, 1))
    data, start, factor = normal(4, 3), normal(3), normal(3)
    shapes = {"data": [4, 3], "start": [3], "factor": [3]}
    found = evaluate(from_mxnet(text, None, shapes), [data, start, factor])
    sums = start + np.cumsum(data, 0)
    np.testing.assert_allclose(found[0], sums * factor, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(found[1], sums[-1], rtol=1e-5, atol=1e-5)
