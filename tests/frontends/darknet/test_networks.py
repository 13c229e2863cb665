"""Published networks beside OpenCV's reader; what it lacks, beside NumPy."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.frontends.darknet import networks as nets
from tests.frontends.opencv import read_network
from tilewright.frontends import read_model
from tilewright.graph import evaluate

RNG = np.random.default_rng(3)


def both(sections: list[nets.Section], height: int, width: int, *, native: bool = False) -> Any:
    """Outputs by OpenCV, and ours."""
    text = nets.cfg_text(sections, height, width).encode()
    data = nets.weights(sections, height, width)
    image = RNG.random((1, 3, height, width), dtype=np.float32)
    net = read_network("Darknet", text, data)
    net.setInput(image)
    wanted = net.forward(net.getUnconnectedOutLayersNames())
    if native:
        found = tw.compile(text, params=data).run([image])
    else:
        found = evaluate(read_model(text, params=data), [image])
    return wanted, found


NETWORKS = {
    "yolov2": (nets.yolov2(0.1, 5), 96, 96),
    "yolov3": (nets.yolov3(0.1, 5, (1, 1, 1, 1, 1)), 96, 64),
    "yolov3_tiny": (nets.yolov3_tiny(0.1, 5), 64, 96),
    "yolov4_tiny": (nets.yolov4_tiny(0.1, 5), 96, 96),
    "classifier": (nets.classifier(), 32, 32),
}


#: The same as they are published, but for the sizes of their images.
WHOLE = {
    "yolov2": (nets.yolov2(), 160, 160),
    "yolov3": (nets.yolov3(), 96, 160),
    "yolov3_tiny": (nets.yolov3_tiny(), 160, 160),
    "yolov4_tiny": (nets.yolov4_tiny(), 160, 160),
}
_ALL = os.environ.get("TILEWRIGHT_PUBLISHED") == "all"


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_beside_opencv(name: str) -> None:
    compare(name, *both(*NETWORKS[name], native=name == "classifier"))


@pytest.mark.skipif(not _ALL, reason="takes long: `make test-published`")
@pytest.mark.parametrize("name", WHOLE)
def test_whole_networks_beside_opencv(name: str) -> None:
    compare(name, *both(*WHOLE[name], native=True))


def compare(name: str, wanted: Any, found: Any) -> None:
    assert len(wanted) == len(found)
    for w, f in zip(wanted, found, strict=True):
        f = f.reshape(w.shape)
        if name == "yolov2":
            # OpenCV suppresses boxes here; what it keeps is the same.
            f = np.where((w == 0) & (np.arange(w.shape[1]) >= 5), 0, f)
        np.testing.assert_allclose(f, w, rtol=1e-4, atol=1e-5)


PARTS: dict[str, list[nets.Section]] = {
    "activations": [nets.conv(4, act=a) for a in ("relu", "mish", "logistic", "tanh", "swish")],
    "strides": [nets.conv(6, 5, 2), nets.conv(6, 3, pad=0, padding=2), nets.conv(4, pad=0)],
    "groups": [nets.conv(8), nets.conv(8, groups=4), nets.route(-1, groups=2, group_id=1)],
    "shortcut": [nets.conv(4), nets.conv(4), ("shortcut", {"from": -2, "activation": "leaky"})],
    "pooling": [nets.conv(4), nets.pool(3, 2), nets.pool(2, 1), nets.pool(5, 1), nets.conv(4, 1)],
    "squeeze": [nets.conv(6), ("avgpool", {}), nets.conv(6, 1, act="logistic"),
                ("scale_channels", {"from": -3}), nets.conv(3)],
}  # fmt: skip


@pytest.mark.parametrize("name", PARTS)
def test_layers_beside_opencv(name: str) -> None:
    wanted, found = both(PARTS[name], 24, 20)
    np.testing.assert_allclose(found[0].reshape(wanted[0].shape), wanted[0], rtol=1e-4, atol=1e-5)


def run(sections: list[nets.Section], data: bytes, image: Any) -> Any:
    text = nets.cfg_text(sections, *image.shape[2:], channels=image.shape[1]).encode()
    shapes = {"data": list(image.shape)}
    return evaluate(read_model(text, shapes, params=data), [image])[0]


def test_new_coordinates() -> None:
    """YOLO v4's scaled variants: the logistic function comes before, sizes are squares."""
    sections = [nets.conv(14, 1, act="logistic", batch_normalize=0)]
    sections += [nets.yolo("0,1", 2, "8,16, 32,24", new_coords=1, scale_x_y=2.0, thresh=0)]
    numbers = nets.Numbers(1)
    bias, weight = numbers.normal(14), numbers.normal(14, 3, 1, 1)
    image = RNG.random((2, 3, 4, 6), dtype=np.float32)
    found = run(sections, numbers.data(), image)
    logits = np.einsum("oc,nchw->nohw", weight[:, :, 0, 0], image) + bias[:, None, None]
    a = (1 / (1 + np.exp(-logits))).reshape(2, 2, 7, 4, 6).transpose(0, 3, 4, 1, 2)
    y, x = np.mgrid[:4, :6]
    places = (a[..., :2] * 2 - 0.5 + np.stack([x, y], -1)[:, :, None]) / [6, 4]
    sizes = (a[..., 2:4] * 2) ** 2 * np.array([[8, 16], [32, 24]]) / [6, 4]
    wanted = np.concatenate([places, sizes, a[..., 4:5], a[..., 5:] * a[..., 4:5]], -1)
    np.testing.assert_allclose(found, wanted.reshape(2, -1, 7), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("header", [(0, 1, 0), (0, 2, 5), (0, 1001, 0)])
def test_headers(header: tuple[int, ...]) -> None:
    """Old headers are shorter; some have the weights of dense layers the other way round."""
    numbers = nets.Numbers(2, header)
    bias, weight = numbers.normal(5), numbers.normal(5 * 12)
    image = RNG.random((1, 3, 2, 2), dtype=np.float32)
    found = run([("connected", {"output": 5, "activation": "linear"})], numbers.data(), image)
    matrix = weight.reshape(12, 5) if header[1] > 1000 else weight.reshape(5, 12).T
    np.testing.assert_allclose(found, image.reshape(1, 12) @ matrix + bias, rtol=1e-5)


def test_dense_normalised() -> None:
    numbers = nets.Numbers(3)
    bias, weight = numbers.normal(4), numbers.normal(4, 3)
    scale, mean, variance = numbers.uniform(4), numbers.normal(4), numbers.uniform(4)
    image = RNG.random((2, 3, 1, 1), dtype=np.float32)
    options = {"output": 4, "batch_normalize": 1, "activation": "relu"}
    found = run([("connected", options)], numbers.data(), image)
    made = (image.reshape(2, 3) @ weight.T - mean) / np.sqrt(variance + 1e-6) * scale + bias
    np.testing.assert_allclose(found, np.maximum(made, 0), rtol=1e-4, atol=1e-5)


def test_local() -> None:
    numbers = nets.Numbers(4)
    bias, weight = numbers.normal(2, 2, 3), numbers.normal(6, 2, 27)
    image = RNG.random((2, 3, 5, 7), dtype=np.float32)
    options = {"filters": 2, "size": 3, "stride": 2, "activation": "linear"}
    found = run([("local", options)], numbers.data(), image)
    for place, (r, c) in enumerate(np.ndindex(2, 3)):
        seen = image[:, :, 2 * r : 2 * r + 3, 2 * c : 2 * c + 3].reshape(2, 27)
        wanted = seen @ weight[place].T + bias[:, r, c]
        np.testing.assert_allclose(found[:, :, r, c], wanted, rtol=1e-4, atol=1e-5)


def test_deconvolution() -> None:
    numbers = nets.Numbers(5)
    bias, weight = numbers.normal(2), numbers.normal(3, 2, 4, 4)
    image = RNG.random((1, 3, 3, 2), dtype=np.float32)
    options = {"filters": 2, "size": 4, "stride": 2, "padding": 1, "activation": "linear"}
    found = run([("deconvolutional", options)], numbers.data(), image)
    wanted = np.zeros((1, 2, 8, 6), np.float32)
    for r, c in np.ndindex(3, 2):
        part = np.einsum("nc,cokl->nokl", image[:, :, r, c], weight)
        wanted[:, :, 2 * r : 2 * r + 4, 2 * c : 2 * c + 4] += part
    wanted = wanted[:, :, 1:-1, 1:-1] + bias[:, None, None]
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def test_first_generation() -> None:
    """YOLO v1: the middle of the image from -1 to 1, and softmax over the classes of each cell."""
    image = RNG.random((1, 1, 6, 4), dtype=np.float32)
    sections = [("crop", {"crop_height": 4, "crop_width": 2})]
    sections += [("detection", {"side": 1, "classes": 3, "softmax": 1})]
    found = run(sections, nets.Numbers(0).data(), image)
    row = (image[:, :, 1:5, 1:3] * 2 - 1).reshape(1, 8)
    parts = np.exp(row[:, :3])
    wanted = np.concatenate([parts / parts.sum(), row[:, 3:]], 1)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def test_files_lie_beside_each_other(tmp_path: Path) -> None:
    text, data = nets.cfg_text(nets.classifier(), 8, 8), nets.weights(nets.classifier(), 8, 8)
    (tmp_path / "net.cfg").write_text(text)
    with pytest.raises(tw.UserError, match=r"there is no net.weights"):
        read_model(tmp_path / "net.cfg")
    (tmp_path / "net.weights").write_bytes(data)
    model = tw.compile(tmp_path / "net.cfg", shapes={"data": ["n", 3, 8, 8]}, opt_level=1)
    assert model.run([np.zeros((3, 3, 8, 8), np.float32)])[0].shape == (3, 10)


def test_weights_stay_in_their_file() -> None:
    sections = [("connected", {"output": 5})]
    data = nets.weights(sections, 2, 2)
    module = read_model(nets.cfg_text(sections, 2, 2).encode(), params=data)
    weights = [v.constant for b in module.main.body for v in b.expr.args if v is not None]
    (weight,) = [w for w in weights if w is not None and w.size == 60]
    assert np.shares_memory(weight, np.frombuffer(data, np.uint8))
