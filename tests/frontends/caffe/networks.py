"""Caffe networks in text, with random weights in the binary form of a caffemodel."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


# ---- the binary form ----------------------------------------------------------------------------


def number(value: int) -> bytes:
    made = bytearray()
    while value >= 0x80:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*made, value])


def field(at: int, content: bytes) -> bytes:
    return number(at << 3 | 2) + number(len(content)) + content


def blob(array: Array, *, old: bool = False) -> bytes:
    data = field(5, array.astype("<f4").tobytes())
    if old:
        shape = [*[1] * (4 - array.ndim), *array.shape]
        return b"".join(number(k << 3) + number(n) for k, n in enumerate(shape, 1)) + data
    return field(7, field(1, b"".join(number(n) for n in array.shape))) + data


def caffemodel(blobs: dict[str, list[Array]], *, old: bool = False) -> bytes:
    """A NetParameter with these blobs; `old` writes layers of the generation before."""
    name_at, blobs_at, layers_at = (4, 6, 2) if old else (1, 7, 100)
    made = field(1, b"net")
    for name, arrays in blobs.items():
        inner = b"".join(field(blobs_at, blob(a, old=old)) for a in arrays)
        made += field(layers_at, field(name_at, name.encode()) + inner)
    return made


def half_blob(array: Array) -> bytes:
    """A blob as OpenCV's shrinkCaffeModel writes it."""
    shape = field(7, field(1, b"".join(number(n) for n in array.shape)))
    return shape + struct.pack("BB", 10 << 3, 2) + field(12, array.astype("<f2").tobytes())


# ---- networks -----------------------------------------------------------------------------------


class Net:
    """A network that is written layer by layer; `x` is the name of the last blob."""

    def __init__(self, *shape: int, seed: int = 0) -> None:
        self.rng = np.random.default_rng(seed)
        dims = " ".join(f"dim: {n}" for n in shape)
        self.lines = [f'name: "net" layer {{ name: "data" type: "Input" top: "data" '
                      f"input_param {{ shape {{ {dims} }} }} }}"]  # fmt: skip
        self.blobs: dict[str, list[Array]] = {}
        self.x, self.channels = "data", shape[1]

    def layer(self, kind: str, param: str = "", *, bottoms: list[str] | None = None,
              top: str = "", blobs: list[Array] | None = None) -> str:  # fmt: skip
        """Add a layer; in place where `top` is what it reads."""
        name = f"{kind.lower()}{len(self.lines)}"
        reads = bottoms or [self.x]
        text = f'layer {{ name: "{name}" type: "{kind}"'
        text += "".join(f' bottom: "{b}"' for b in reads) + f' top: "{top or name}" {param} }}'
        self.lines.append(text)
        if blobs:
            self.blobs[name] = blobs
        self.x = top or name
        return self.x

    def normal(self, *shape: int, scale: float = 1.0) -> Array:
        return (self.rng.standard_normal(shape) * scale).astype(np.float32)

    def conv(self, outputs: int, size: int = 3, *, stride: int = 1, group: int = 1,
             bias: bool = True, source: str = "", pad: int | None = None) -> str:  # fmt: skip
        inputs = self.channels // group
        weight = self.normal(outputs, inputs, size, size, scale=(2 / (inputs * size * size)) ** 0.5)
        param = f"num_output: {outputs} kernel_size: {size} stride: {stride} group: {group} "
        param += f"pad: {size // 2 if pad is None else pad} bias_term: {str(bias).lower()}"
        blobs = [weight, self.normal(outputs, scale=0.1)] if bias else [weight]
        self.channels = outputs
        return self.layer("Convolution", f"convolution_param {{ {param} }}",
                          bottoms=[source] if source else None, blobs=blobs)  # fmt: skip

    def norm(self) -> str:
        """Batch normalisation and scale, in place."""
        c = self.channels
        sums = [self.normal(c, scale=0.2), self.rng.uniform(0.5, 2, c).astype(np.float32)]
        self.layer("BatchNorm", top=self.x, blobs=[*sums, np.array([2.0], np.float32)])
        scale = [self.rng.uniform(0.5, 1.5, c).astype(np.float32), self.normal(c, scale=0.1)]
        return self.layer("Scale", "scale_param { bias_term: true }", top=self.x, blobs=scale)

    def relu(self) -> str:
        return self.layer("ReLU", top=self.x)

    def pool(self, kind: str = "MAX", size: int = 3, stride: int = 2, pad: int = 0) -> str:
        window = f"kernel_size: {size} stride: {stride} pad: {pad}"
        return self.layer("Pooling", f"pooling_param {{ pool: {kind} {window} }}")

    def dense(self, inputs: int, outputs: int) -> str:
        blobs = [self.normal(outputs, inputs, scale=inputs**-0.5), self.normal(outputs, scale=0.1)]
        param = f"inner_product_param {{ num_output: {outputs} }}"
        return self.layer("InnerProduct", param, blobs=blobs)

    def files(self) -> tuple[bytes, bytes]:
        return "\n".join(self.lines).encode(), caffemodel(self.blobs)


def end(net: Net, classes: int = 10) -> Net:
    net.layer("Pooling", "pooling_param { pool: AVE global_pooling: true }")
    net.dense(net.channels, classes)
    net.layer("Softmax")
    return net


def resnet(width: int = 8) -> Net:
    """ResNet-50's stem and one bottleneck of each kind."""
    net = Net(1, 3, 33, 31)
    net.conv(width, 7, stride=2, bias=False)
    net.norm()
    net.relu()
    start = net.pool()
    for stride, side in ((1, True), (1, False), (2, True)):
        channels = net.channels
        other = start
        if side:
            net.conv(4 * width, 1, stride=stride, bias=False)
            other = net.norm()
            net.channels = channels
        net.conv(width, 1, stride=stride, bias=False, source=start)
        net.norm()
        net.relu()
        net.conv(width, 3, bias=False)
        net.norm()
        net.relu()
        net.conv(4 * width, 1, bias=False)
        net.norm()
        net.layer("Eltwise", bottoms=[other, net.x])
        start = net.relu()
    return end(net)


def mobilenet(width: int = 8) -> Net:
    net = Net(1, 3, 32, 32)
    net.conv(width, stride=2, bias=False)
    net.norm()
    net.relu()
    for outputs, stride in ((2, 1), (4, 2), (4, 1), (8, 2)):
        net.conv(net.channels, stride=stride, group=net.channels, bias=False)
        net.norm()
        net.relu()
        net.conv(outputs * width, 1, bias=False)
        net.norm()
        net.relu()
    return end(net)


def googlenet(width: int = 4) -> Net:
    """LRN, ceiling in pooling, and two inception modules."""
    net = Net(1, 3, 40, 37)
    net.conv(2 * width, 7, stride=2)
    net.relu()
    net.pool()
    net.layer("LRN", "lrn_param { local_size: 5 alpha: 0.01 beta: 0.75 }")
    for _ in range(2):
        source, channels = net.x, net.channels
        parts = [net.conv(width, 1, source=source)]
        for size in (3, 5):
            net.channels = channels
            net.conv(width, 1, source=source)
            net.relu()
            parts.append(net.conv(2 * width, size))
        net.x, net.channels = source, channels
        net.pool(stride=1, pad=1)
        parts.append(net.conv(width, 1))
        net.layer("Concat", bottoms=parts)
        net.channels = 6 * width
        net.relu()
        net.pool(pad=1)
    net.layer("Dropout", "dropout_param { dropout_ratio: 0.4 }", top=net.x)
    return end(net)


def ssd(classes: int = 4) -> Net:
    """Two feature maps, their boxes and what is found among them."""
    net = Net(1, 3, 48, 48)
    net.conv(8, stride=2)
    net.relu()
    first = net.conv(12, stride=2)
    norm = "norm_param { across_spatial: false channel_shared: false }"
    scaled = net.layer("Normalize", norm, blobs=[np.full(12, 20, np.float32)])
    net.x = first
    net.relu()
    second = net.conv(12, stride=2)
    parts: dict[str, list[str]] = {"loc": [], "conf": [], "prior": []}
    for source, low, high in ((scaled, 10, 20), (second, 20, 35)):
        for kind, size in (("loc", 4), ("conf", classes)):
            net.channels = 12
            net.conv(4 * size, source=source)
            net.layer("Permute", "permute_param { order: 0 order: 2 order: 3 order: 1 }")
            parts[kind].append(net.layer("Flatten", "flatten_param { axis: 1 }"))
        box = f"min_size: {low} max_size: {high} aspect_ratio: 2 clip: false "
        box += "variance: 0.1 variance: 0.1 variance: 0.2 variance: 0.2"
        prior = f"prior_box_param {{ {box} }}"
        parts["prior"].append(net.layer("PriorBox", prior, bottoms=[source, "data"]))
    loc = net.layer("Concat", "concat_param { axis: 1 }", bottoms=parts["loc"])
    net.layer("Concat", "concat_param { axis: 1 }", bottoms=parts["conf"])
    shape = f"reshape_param {{ shape {{ dim: 0 dim: -1 dim: {classes} }} }}"
    net.layer("Reshape", shape)
    net.layer("Softmax", "softmax_param { axis: 2 }")
    conf = net.layer("Flatten", "flatten_param { axis: 1 }")
    boxes = net.layer("Concat", "concat_param { axis: 2 }", bottoms=parts["prior"])
    found = f"num_classes: {classes} code_type: CENTER_SIZE keep_top_k: 60 "
    found += "share_location: true background_label_id: 0 "
    found += "confidence_threshold: 0.2 nms_param { nms_threshold: 0.45 top_k: 100 }"
    net.layer(
        "DetectionOutput", f"detection_output_param {{ {found} }}", bottoms=[loc, conf, boxes]
    )
    return net
