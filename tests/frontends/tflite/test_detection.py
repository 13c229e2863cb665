"""Boxes, and MediaPipe's custom operators, beside NumPy and LiteRT."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest

from tests.frontends.tflite.cases import Case, Fixed, case, floats, scalar
from tests.frontends.tflite.peer import lite, ours, require_close
from tests.frontends.tflite.writer import Writer

RNG = np.random.default_rng(11)


def flexbuffer(**fields: float | bool) -> bytes:
    """A map whose values take four bytes each; the last is given first, as keys are in order."""
    names = sorted(fields)
    out, places = b"", dict[str, int]()
    for name in names:
        places[name] = len(out)
        out += name.encode() + b"\0"
    out += b"\0" * (-len(out) % 4)
    out += struct.pack("<I", len(names))
    keys = len(out)
    for name in names:
        out += struct.pack("<I", len(out) - places[name])
    out += struct.pack("<III", len(out) - keys, 4, len(names))
    values = len(out)
    kinds = b""
    for name in names:
        v = fields[name]
        out += struct.pack("<f", v) if isinstance(v, float) else struct.pack("<i", int(v))
        kind = 3 if isinstance(v, float) else 26 if isinstance(v, bool) else 1
        kinds += bytes([kind << 2 | 2])
    out += kinds
    return out + bytes([len(out) - values, 9 << 2 | 2, 1])


def boxes(count: int) -> Any:
    corner = RNG.uniform(0, 0.6, (count, 2))
    return np.concatenate([corner, corner + RNG.uniform(0.2, 0.4, (count, 2))], 1).astype("f")


def overlap(a: Any, b: Any) -> float:
    low, high = np.maximum(a[:2], b[:2]), np.minimum(a[2:], b[2:])
    shared = np.prod(np.maximum(high - low, 0))
    return shared / (np.prod(a[2:] - a[:2]) + np.prod(b[2:] - b[:2]) - shared)


def kept(found: Any, scores: Any, most: int, threshold: float, least: float) -> list[int]:
    chosen: list[int] = []
    for k in np.argsort(-scores, kind="stable"):
        if scores[k] > least and all(overlap(found[k], found[c]) <= threshold for c in chosen):
            chosen.append(int(k))
    return chosen[:most]


def suppressed(b: Any, s: Any, *_: Any) -> list[Any]:
    chosen = kept(b, s, 6, 0.3, 0.2)
    places = np.zeros(6, np.int32)
    places[: len(chosen)] = chosen
    return [places, np.array(len(chosen), np.int32)]


def suppressed_with_scores(b: Any, s: Any, *_: Any) -> list[Any]:
    places, count = suppressed(b, s)
    scores = np.where(np.arange(6) < count, s[places], 0).astype(np.float32)
    return [places, scores, count]


LIMITS = [scalar(6), scalar(0.3, "float32"), scalar(0.2, "float32")]
SCORES = RNG.permutation(20).astype(np.float32) / 20
CASES: dict[str, Case] = {
    "nms_v4": case("NON_MAX_SUPPRESSION_V4", [boxes(20), SCORES, *LIMITS], suppressed),
    "nms_v5": case(
        "NON_MAX_SUPPRESSION_V5",
        [boxes(20), SCORES, *LIMITS, scalar(0, "float32")],
        suppressed_with_scores,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_suppression(name: str) -> None:
    c = CASES[name]
    require_close(ours(c.data, *c.inputs), c.wanted)
    require_close(ours(c.data, *c.inputs, native=True), c.wanted)
    require_close(lite(c.data, *c.inputs), c.wanted)


@pytest.mark.parametrize(("regular", "classes"), [(False, 1), (False, 2), (True, 1)])
def test_detection_postprocess(regular: bool, classes: int) -> None:
    count, most = 24, 5
    custom = flexbuffer(
        max_detections=most,
        max_classes_per_detection=classes,
        detections_per_class=10,
        use_regular_nms=regular,
        nms_score_threshold=0.1,
        nms_iou_threshold=0.5,
        num_classes=3,
        y_scale=10.0,
        x_scale=10.0,
        h_scale=5.0,
        w_scale=5.0,
    )
    coded = RNG.normal(size=(1, count, 4)).astype(np.float32)
    scores = (RNG.permutation(count * 4).reshape(1, count, 4) / (count * 4)).astype(np.float32)
    anchors = np.concatenate([RNG.uniform(0.2, 0.8, (count, 2)), np.full((count, 2), 0.3)], 1)
    w = Writer()
    ins = [w.input("float32", v.shape) for v in (coded, scores)]
    ins.append(w.constant(anchors.astype(np.float32)))
    total = most * classes
    shapes = [[1, total, 4], [1, total], [1, total], [1]]
    outs = [w.tensor("float32", s) for s in shapes]
    w.op("TFLite_Detection_PostProcess", ins, outs, custom=custom)
    data = w.model(outs)
    found = ours(data, coded, scores)
    assert 0 < found[3][0] <= most
    require_close(found, lite(data, coded, scores))


# ---- MediaPipe's --------------------------------------------------------------------------------


def spread(x: Any, w: Any, b: Any) -> Any:
    n, h, wide, _ = x.shape
    y = np.zeros((n, 2 * h, 2 * wide, len(w)), np.float32) + b
    for i in range(h):
        for j in range(wide):
            part = np.einsum("nc,oijc->nijo", x[:, i, j], w)
            y[:, 2 * i : 2 * i + 2, 2 * j : 2 * j + 2] += part
    return y


def test_transposed_convolution_with_a_bias() -> None:
    c = case(
        "Convolution2DTransposeBias",
        [floats(1, 4, 6, 2), Fixed(floats(5, 2, 2, 2)), Fixed(floats(5))],
        spread,
        custom=struct.pack("<3i", 1, 2, 2),
    )
    require_close(ours(c.data, *c.inputs), c.wanted)


def test_pooling_that_remembers_and_its_inverse() -> None:
    options = struct.pack("<6i", 1, 2, 2, 2, 2, 0)
    x = floats(1, 4, 6, 2)
    parts = x.reshape(1, 2, 2, 3, 2, 2).transpose(0, 1, 3, 5, 2, 4).reshape(1, 2, 3, 2, 4)
    places = parts.argmax(-1)
    pooled = case(
        "MaxPoolingWithArgmax2D",
        [x],
        lambda _: [parts.max(-1), places.astype(np.float32) + np.float32(0.1)],
        custom=options,
    )
    require_close(ours(pooled.data, x), pooled.wanted)
    back = np.where(np.arange(4) == places[..., None], parts, 0)
    back = back.reshape(1, 2, 3, 2, 2, 2).transpose(0, 1, 4, 2, 5, 3).reshape(1, 4, 6, 2)
    unpooled = case("MaxUnpooling2D", pooled.wanted, lambda *_: back, custom=options)
    require_close(ours(unpooled.data, *pooled.wanted), [back])


def test_image_under_a_matrix() -> None:
    """Moved by half a pixel, a pixel of the result is the mean of two."""
    x = floats(1, 4, 4, 2)
    matrix = np.eye(4, dtype=np.float32)[None].copy()
    matrix[0, 0, 3] = 0.5
    wanted = np.zeros((1, 4, 4, 2), np.float32)
    wanted[:, :, :3] = (x[:, :, :3] + x[:, :, 1:]) / 2
    custom = flexbuffer(output_height=4, output_width=4)
    c = case("TransformTensorBilinear", [x, matrix], lambda *_: wanted, version=2, custom=custom)
    require_close(ours(c.data, *c.inputs), [wanted])


def test_landmarks_under_a_matrix() -> None:
    points, matrix = floats(1, 5, 3), floats(1, 4, 4)
    flat = points.copy()
    flat[..., 2] = 0
    wanted = np.concatenate([flat, np.ones((1, 5, 1), "f")], 2) @ matrix[0, :2].T
    wanted = np.concatenate([wanted, points[..., 2:]], 2).astype(np.float32)
    c = case("TransformLandmarks", [points, matrix], lambda *_: wanted, version=2)
    require_close(ours(c.data, *c.inputs), [wanted])
