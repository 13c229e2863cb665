"""Darknet networks from lists of sections: the text of the cfg file and random weights for it."""

from __future__ import annotations

from typing import Any

import numpy as np

Section = tuple[str, dict[str, Any]]


def conv(filters: int, size: int = 3, stride: int = 1, act: str = "leaky", **more: Any) -> Section:
    options = {"batch_normalize": 1, "filters": filters, "size": size, "stride": stride, "pad": 1}
    return "convolutional", {**options, "activation": act, **more}


def linear(filters: int, size: int = 1) -> Section:
    return conv(filters, size, act="linear", batch_normalize=0)


def route(*layers: int, **more: Any) -> Section:
    return "route", {"layers": ",".join(map(str, layers)), **more}


def yolo(mask: str, classes: int, anchors: str, **more: Any) -> Section:
    count = len(anchors.split(",")) // 2
    return "yolo", {"mask": mask, "anchors": anchors, "classes": classes, "num": count, **more}


def cfg_text(sections: list[Section], height: int, width: int, channels: int = 3) -> str:
    net = ("net", {"batch": 64, "height": height, "width": width, "channels": channels})
    lines = ["# a comment"]
    for kind, options in [net, *sections]:
        lines += [f"[{kind}]", *(f"{k} = {v}" for k, v in options.items()), ""]
    return "\n".join(lines)


class Numbers:
    """Random weights in the order of a file of weights, with a header of a version."""

    def __init__(self, seed: int, header: tuple[int, ...] = (0, 2, 0)) -> None:
        self._rng = np.random.default_rng(seed)
        major, minor, _ = header
        wide = major * 10 + minor >= 2 and max(major, minor) < 1000
        self.parts = [np.array(header, "<i4").tobytes(), bytes(8 if wide else 4)]

    def normal(self, *shape: int, scale: float = 1.0) -> np.ndarray[Any, Any]:
        return self._add(self._rng.standard_normal(shape) * scale)

    def uniform(self, *shape: int) -> np.ndarray[Any, Any]:
        return self._add(self._rng.uniform(0.5, 1.5, shape))

    def _add(self, made: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        numbers = made.astype("<f4")
        self.parts.append(numbers.tobytes())
        return numbers

    def data(self) -> bytes:
        return b"".join(self.parts)


def weights(sections: list[Section], height: int, width: int, channels: int = 3, seed: int = 0,
            header: tuple[int, ...] = (0, 2, 0)) -> bytes:  # fmt: skip
    """Random weights for a network, found by following the shapes of its layers."""
    numbers = Numbers(seed, header)
    shapes: list[tuple[int, int, int]] = []
    shape = (channels, height, width)
    for index, (kind, o) in enumerate(sections):
        c, h, w = shape
        stride, size = o.get("stride", 1), o.get("size", 1)
        if kind == "convolutional":
            n, c_in = o["filters"], c // o.get("groups", 1)
            numbers.normal(n, scale=0.1)
            if o.get("batch_normalize"):
                numbers.uniform(n)
                numbers.normal(n, scale=0.1)
                numbers.uniform(n)
            # What is added up, block after block, must not grow without end.
            added = sections[index + 1 : index + 2] and sections[index + 1][0] == "shortcut"
            gain = 0.1 if added else 1.5
            numbers.normal(n, c_in, size, size, scale=(gain / (c_in * size * size)) ** 0.5)
            reach = (size - 1) * o.get("dilation", 1) + 1
            pad = size // 2 if o.get("pad") else o.get("padding", 0)
            shape = (n, *((e + 2 * pad - reach) // stride + 1 for e in (h, w)))  # type: ignore[assignment]
        elif kind == "maxpool":
            pad = o.get("padding", size - 1)
            shape = (c, *((e + pad - size) // stride + 1 for e in (h, w)))  # type: ignore[assignment]
        elif kind == "avgpool":
            shape = (c, 1, 1)
        elif kind == "connected":
            n = o["output"]
            numbers.normal(n, scale=0.1)
            numbers.normal(n, c * h * w, scale=(c * h * w) ** -0.5)
            if o.get("batch_normalize"):
                numbers.uniform(n)
                numbers.normal(n, scale=0.1)
                numbers.uniform(n)
            shape = (n, 1, 1)
        elif kind == "upsample":
            shape = (c, h * stride, w * stride)
        elif kind == "reorg":
            shape = (c * stride * stride, h // stride, w // stride)
        elif kind == "route":
            named = [int(k) for k in str(o["layers"]).split(",")]
            found = [shapes[index + k if k < 0 else k] for k in named]
            shape = (sum(f[0] for f in found) // o.get("groups", 1), *found[0][1:])
        shapes.append(shape)
    return numbers.data()


# ---- published networks, narrow -----------------------------------------------------------------

TINY_ANCHORS = "10,14, 23,27, 37,58, 81,82, 135,169, 344,319"
ANCHORS = "10,13, 16,30, 33,23, 30,61, 62,45, 59,119, 116,90, 156,198, 373,326"


def pool(size: int = 2, stride: int = 2, **more: Any) -> Section:
    return "maxpool", {"size": size, "stride": stride, **more}


def yolov3_tiny(width: float = 1.0, classes: int = 80) -> list[Section]:
    def w(n: int) -> int:
        return max(4, 4 * int(n * width / 4))

    out = 3 * (5 + classes)
    made = [conv(w(16)), pool(), conv(w(32)), pool(), conv(w(64)), pool(), conv(w(128)), pool()]
    made += [conv(w(256)), pool(), conv(w(512)), pool(stride=1), conv(w(1024)), conv(w(256), 1)]
    made += [conv(w(512)), linear(out), yolo("3,4,5", classes, TINY_ANCHORS), route(-4)]
    made += [conv(w(128), 1), ("upsample", {"stride": 2}), route(-1, 8), conv(w(256)), linear(out)]
    return [*made, yolo("0,1,2", classes, TINY_ANCHORS)]


def yolov4_tiny(width: float = 1.0, classes: int = 80) -> list[Section]:
    def w(n: int) -> int:
        return max(8, 4 * int(n * width / 4))

    def stage(n: int) -> list[Section]:
        return [
            conv(w(n)),
            route(-1, groups=2, group_id=1),
            conv(w(n) // 2),
            conv(w(n) // 2),
            route(-1, -2),
            conv(w(n), 1),
            route(-6, -1),
            pool(),
        ]

    out = 3 * (5 + classes)
    made = [conv(w(32), stride=2), conv(w(64), stride=2), *stage(64), *stage(128), *stage(256)]
    made += [conv(w(512)), conv(w(256), 1), conv(w(512)), linear(out)]
    made += [yolo("3,4,5", classes, TINY_ANCHORS, scale_x_y=1.05), route(-4), conv(w(128), 1)]
    made += [("upsample", {"stride": 2}), route(-1, 23), conv(w(256)), linear(out)]
    return [*made, yolo("1,2,3", classes, TINY_ANCHORS, scale_x_y=1.05)]


def residual(n: int, act: str) -> list[Section]:
    join = ("shortcut", {"from": -3, "activation": "linear"})
    return [conv(n // 2, 1, act=act), conv(n, act=act), join]


def yolov3(
    width: float = 1.0, classes: int = 80, blocks: tuple[int, ...] = (1, 2, 8, 8, 4)
) -> list[Section]:
    """Darknet-53 and three detectors; `blocks` says how many residual blocks each stage has."""

    def w(n: int) -> int:
        return max(4, 4 * int(n * width / 4))

    made = [conv(w(32))]
    ends: list[int] = []
    for channels, count in zip((64, 128, 256, 512, 1024), blocks, strict=True):
        made.append(conv(w(channels), stride=2))
        for _ in range(count):
            made += residual(w(channels), "leaky")
        ends.append(len(made) - 1)
    for k, (n, mask) in enumerate([(512, "6,7,8"), (256, "3,4,5"), (128, "0,1,2")]):
        if k:
            made += [route(-4), conv(w(n), 1), ("upsample", {"stride": 2}), route(-1, ends[4 - k])]
        for _ in range(3):
            made += [conv(w(n), 1), conv(w(2 * n))]
        made += [linear(3 * (5 + classes)), yolo(mask, classes, ANCHORS)]
    return made


def yolov2(width: float = 1.0, classes: int = 20) -> list[Section]:
    """The passthrough by `reorg` and one `region` layer."""

    def w(n: int) -> int:
        return max(4, 4 * int(n * width / 4))

    made = [conv(w(32)), pool(), conv(w(64)), pool(), conv(w(128)), conv(w(64), 1), conv(w(128))]
    made += [pool(), conv(w(256)), conv(w(128), 1), conv(w(256)), pool(), conv(w(512))]
    made += [conv(w(256), 1), conv(w(512)), pool(), conv(w(1024)), conv(w(512), 1), conv(w(1024))]
    made += [route(-5), conv(w(64), 1), ("reorg", {"stride": 2}), route(-1, -4), conv(w(1024))]
    anchors = "1.3221,1.73145,3.19275,4.00944,5.05587,8.09892,9.47112,4.84053,11.2364,10.0071"
    region = {"anchors": anchors, "classes": classes, "coords": 4, "num": 5, "softmax": 1}
    return [*made, linear(5 * (5 + classes)), ("region", {**region, "bias_match": 1})]


def classifier() -> list[Section]:
    """Darknet's reference network, with dense layers at its end."""
    made = [conv(8), pool(), conv(16, groups=2), conv(12, act="swish", stride=2), ("avgpool", {})]
    made += [("dropout", {"probability": 0.5})]
    return [
        *made,
        ("connected", {"output": 10, "activation": "linear"}),
        ("softmax", {"groups": 1}),
    ]
