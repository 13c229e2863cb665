"""Networks from published definitions beside OpenCV's reader, and how files are found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.frontends.caffe import networks as nets
from tests.frontends.opencv import read_network
from tilewright.frontends import from_caffe, read_model
from tilewright.graph import evaluate

RNG = np.random.default_rng(7)


def input_of(module: Any) -> Any:
    return RNG.random([int(d.value) for d in module.main.params[0].shape], dtype=np.float32)


def in_order(found: Any) -> Any:
    """Rows by class, and by falling scores within a class, as Caffe has them."""
    rows = found[0, 0]
    return found[:, :, np.lexsort((-rows[:, 2], rows[:, 1]))]


@pytest.mark.parametrize("make", [nets.resnet, nets.mobilenet, nets.googlenet, nets.ssd])
def test_networks_beside_opencv(make: Any) -> None:
    text, data = make().files()
    module = read_model(text, params=data)
    image = input_of(module)
    net = read_network("Caffe", text, data)
    net.setInput(image)
    wanted = net.forward()
    (found,) = evaluate(module, [image])
    if make is nets.ssd:
        assert found.shape[2] > 5
        # OpenCV fills what it does not find with zeros.
        assert not wanted[0, 0, found.shape[2] :].any()
        wanted = in_order(wanted[:, :, : found.shape[2]])
        np.testing.assert_array_equal(found, in_order(found))
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def test_native() -> None:
    net = nets.Net(1, 3, 16, 16)
    net.conv(8, stride=2)
    net.norm()
    net.relu()
    net.pool()
    text, data = nets.end(net).files()
    module = read_model(text, params=data)
    image = input_of(module)
    found = tw.compile(text, params=data).run([image])[0]
    np.testing.assert_allclose(found, evaluate(module, [image])[0], rtol=1e-4, atol=1e-6)


def test_detections_in_a_batch() -> None:
    """Each image of a batch has what it would have alone."""
    text, data = nets.ssd().files()
    images = RNG.random((2, 3, 48, 48), dtype=np.float32)
    module = read_model(text, {"data": [2, 3, 48, 48]}, params=data)
    (found,) = evaluate(module, [images])
    alone = from_caffe(text, data)
    for k in range(2):
        (wanted,) = evaluate(alone, [images[k : k + 1]])
        rows = found[0, 0][found[0, 0, :, 0] == k]
        np.testing.assert_allclose(rows[:, 1:], wanted[0, 0, :, 1:], rtol=1e-4, atol=1e-5)


OLD = """
input: "data" input_dim: 1 input_dim: 2 input_dim: 5 input_dim: 4  # four numbers
layers { name: 'conv' type: CONVOLUTION bottom: "data" top: "conv"
         convolution_param < num_output: 3, kernel_size: 3; > }
layers { name: "relu" type: RELU bottom: "conv" top: "conv" relu_param { negative_slope: 0.1 } }
layers { name: "loss" type: SOFTMAX_LOSS bottom: "conv" top: "loss" include: { phase: TRAIN } }
layers { name: "prob" type: SOFTMAX bottom: "conv" top: "prob" exclude { phase: TRAIN } }
"""


@pytest.mark.parametrize("old", [True, False])
def test_old_layers(old: bool) -> None:
    """The generation before: types in capitals, blobs with four dimensions, inputs on top."""
    weight, bias = (RNG.standard_normal(s).astype(np.float32) for s in ((3, 2, 3, 3), (3,)))
    data = nets.caffemodel({"conv": [weight, bias]}, old=old)
    image = RNG.random((1, 2, 5, 4), dtype=np.float32)
    module = read_model(OLD.encode(), params=data)
    assert [r.name for r in module.main.results] == ["prob"]
    (found,) = evaluate(module, [image])
    seen = np.lib.stride_tricks.sliding_window_view(image, (3, 3), (2, 3))
    made = np.einsum("nchwij,ocij->nohw", seen, weight) + bias[:, None, None]
    made = np.exp(np.where(made > 0, made, 0.1 * made))
    np.testing.assert_allclose(found, made / made.sum(1, keepdims=True), rtol=1e-4)


def test_weights_in_half_precision() -> None:
    text = b'input: "data" input_shape { dim: 1 dim: 4 } layer { name: "ip" type: "InnerProduct" '
    text += b'bottom: "data" top: "y" inner_product_param { num_output: 2 bias_term: false } }'
    weight = RNG.standard_normal((2, 4)).astype(np.float16)
    layer = nets.field(1, b"ip") + nets.field(7, nets.half_blob(weight))
    (found,) = evaluate(from_caffe(text, nets.field(100, layer)), [np.eye(1, 4, dtype=np.float32)])
    assert (found == weight[:, 0]).all()


def test_files_lie_beside_each_other(tmp_path: Path) -> None:
    text, data = nets.end(nets.Net(1, 3, 8, 8)).files()
    (tmp_path / "net.prototxt").write_bytes(text)
    with pytest.raises(tw.UserError, match=r"pass params='….caffemodel'"):
        read_model(tmp_path / "net.prototxt")
    (tmp_path / "net.caffemodel").write_bytes(data)
    module = read_model(tmp_path / "net.prototxt", {"data": ["n", 3, 8, 8]})
    assert evaluate(module, [np.zeros((5, 3, 8, 8), np.float32)])[0].shape == (5, 10)


def test_weights_stay_in_their_file() -> None:
    net = nets.Net(1, 4)
    net.dense(4, 3)
    text, data = net.files()
    module = from_caffe(text, data)
    weights = [v.constant for b in module.main.body for v in b.expr.args if v is not None]
    (weight,) = [w for w in weights if w is not None and w.size == 12]
    assert np.shares_memory(weight, np.frombuffer(data, np.uint8))
