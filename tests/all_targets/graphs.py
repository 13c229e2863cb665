"""Random networks with free sizes, as ONNX models: one family for each kind of kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx

from tests.frontends.onnx.models import info, make, node

CHANNELS = [3, 4, 6, 8, 16, 17, 24, 32, 48, 64]
WIDTHS = [5, 16, 24, 33, 64, 96, 128, 200]
MAPS = ["Relu", "Sigmoid", "HardSwish", "Tanh", "Exp", "Erf", "Softplus", "LeakyRelu", "Elu", "Neg"]


class Network:
    """A model in the making: every value is known by its name."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.inputs: list[Any] = []
        self.nodes: list[Any] = []
        self.weights: dict[str, Any] = {}

    def one(self, choices: Any) -> Any:
        return choices[int(self.rng.integers(len(choices)))]

    def maybe(self, chance: float = 0.5) -> bool:
        return bool(self.rng.random() < chance)

    def input(self, *shape: int | str, dtype: str = "float32") -> str:
        name = f"x{len(self.inputs)}"
        self.inputs.append(info(name, dtype, list(shape)))
        return name

    def weight(self, *shape: int) -> str:
        return self.constant((self.rng.standard_normal(shape) / 8).astype("f4"))

    def constant(self, value: Any) -> str:
        name = f"w{len(self.weights)}"
        self.weights[name] = np.asarray(value)
        return name

    def add(self, op: str, *operands: str, results: int = 1, **attrs: Any) -> Any:
        names = [f"v{len(self.nodes)}_{k}" for k in range(results)]
        self.nodes.append(node(op, list(operands), names, **attrs))
        return names[0] if results == 1 else names

    def map(self, x: str) -> str:
        return self.add(self.one(MAPS), x)

    def model(self, *outputs: str) -> onnx.ModelProto:
        return make(self.nodes, self.inputs, outputs, self.weights, opset=17)


# ---- images -------------------------------------------------------------------------------------


def _convolved(net: Network, x: str, count: int, rank: int) -> tuple[str, int]:
    """A convolution of any kind, with strides, dilations, bias and activation."""
    kind = net.one(["plain", "plain", "depthwise", "grouped", "pointwise"])
    size = 1 if kind == "pointwise" else net.one([1, 2, 3, 5])
    divisors = [g for g in (2, 3, 4) if count % g == 0]
    groups = count if kind == "depthwise" else net.one(divisors or [1]) if kind == "grouped" else 1
    outputs = count * net.one([1, 1, 2]) if groups > 1 else net.one(CHANNELS)
    dilation = net.one([1, 1, 2])
    weight = net.weight(outputs, count // groups, *[size] * rank)
    bias = [net.weight(outputs)] if net.maybe() else []
    around = dilation * (size - 1) // 2
    y = net.add(
        "Conv",
        x,
        weight,
        *bias,
        group=groups,
        strides=[net.one([1, 1, 2])] * rank,
        dilations=[dilation] * rank,
        pads=[around] * (2 * rank),
    )
    return (net.map(y) if net.maybe(0.7) else y), outputs


def _residual(net: Network, x: str, count: int, rank: int) -> tuple[str, int]:
    size = net.one([1, 3])
    y = net.add("Conv", x, net.weight(count, count, *[size] * rank), pads=[size // 2] * 2 * rank)
    if net.maybe():
        one, scale = net.constant(np.ones(count, "f4")), net.weight(count)
        y = net.add("BatchNormalization", y, scale, net.weight(count), net.weight(count), one)
    return net.add("Relu", net.add("Add", y, x)), count


def _gated(net: Network, x: str, count: int, rank: int) -> tuple[str, int]:
    mean = net.add("GlobalAveragePool", x)
    gate = net.add("Conv", mean, net.weight(count, count, *[1] * rank))
    return net.add("Mul", x, net.add("Sigmoid", gate)), count


def _pooled(net: Network, x: str, count: int, rank: int) -> tuple[str, int]:
    kind, size, stride = net.one(["MaxPool", "AveragePool"]), net.one([2, 3]), net.one([1, 2])
    pads = [size // 2] * (2 * rank)
    return net.add(kind, x, kernel_shape=[size] * rank, strides=[stride] * rank, pads=pads), count


def _resized(net: Network, x: str, count: int, rank: int) -> tuple[str, int]:
    scales = net.constant(np.array([1, 1, *[net.one([2, 0.5, 1.5])] * rank], "f4"))
    mode = net.one(["nearest", "linear"])
    how = net.one(["asymmetric", "half_pixel", "align_corners"])
    return net.add("Resize", x, "", scales, mode=mode, coordinate_transformation_mode=how), count


def _transposed(net: Network, x: str, count: int, rank: int) -> tuple[str, int]:
    outputs, size = net.one(CHANNELS), net.one([2, 3, 4])
    weight, stride = net.weight(count, outputs, *[size] * rank), net.one([1, 2])
    return net.add("ConvTranspose", x, weight, strides=[stride] * rank), outputs


def _joined(net: Network, x: str, count: int, rank: int) -> tuple[str, int]:
    weight = net.weight(net.one(CHANNELS), count, *[1] * rank)
    y = net.add("Conv", x, weight)
    return net.add("Concat", x, y, axis=1), count + len(net.weights[weight])


def _normalized(net: Network, x: str, count: int, _rank: int) -> tuple[str, int]:
    return net.add("InstanceNormalization", x, net.weight(count), net.weight(count)), count


_STEPS: list[Callable[[Network, str, int, int], tuple[str, int]]] = [
    *[_convolved] * 5,
    *[_residual, _residual, _gated, _pooled, _resized, _transposed, _joined, _normalized],
]


def images(net: Network) -> onnx.ModelProto:
    rank, count = net.one([1, 2, 2, 2, 3]), net.one(CHANNELS)
    x = net.input("n", count, *"hwd"[:rank])
    for _ in range(int(net.rng.integers(2, 7 if rank < 3 else 4))):
        x, count = net.one(_STEPS)(net, x, count, rank)
    if net.maybe():
        flat = net.add("Flatten", net.add("GlobalAveragePool", x))
        x = net.add("Gemm", flat, net.weight(count, 10), net.weight(10))
    return net.model(x)


# ---- rows ---------------------------------------------------------------------------------------


def attention(net: Network) -> onnx.ModelProto:
    """Heads, a mask or none, a residual, a normalization, a network by rows."""
    heads, width = net.one([1, 2, 4]), net.one([8, 16, 24, 64])
    size = heads * width
    x = net.input("n", "rows", size)
    shape = net.constant(np.array([0, 0, heads, width]))

    def split(v: str, axes: list[int]) -> str:
        made = net.add("Add", net.add("MatMul", v, net.weight(size, size)), net.weight(size))
        return net.add("Transpose", net.add("Reshape", made, shape), perm=axes)

    q, k, v = (split(x, axes) for axes in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]))
    scores = net.add("Mul", net.add("MatMul", q, k), net.constant(np.float32(width**-0.5)))
    kind = net.one(["none", "added", "chosen"])
    if kind == "added":
        scores = net.add("Add", scores, net.input("n", 1, "rows", "rows"))
    elif kind == "chosen":
        mask = net.input("n", 1, 1, "rows", dtype="bool")
        scores = net.add("Where", mask, scores, net.constant(np.float32(-1e9)))
    mixed = net.add("MatMul", net.add("Softmax", scores, axis=-1), v)
    flat = net.constant(np.array([0, 0, size]))
    y = net.add("Reshape", net.add("Transpose", mixed, perm=[0, 2, 1, 3]), flat)
    y = net.add("Add", x, net.add("MatMul", y, net.weight(size, size)))
    y = net.add("LayerNormalization", y, net.weight(size), net.weight(size))
    inner = net.map(net.add("MatMul", y, net.weight(size, 4 * size)))
    return net.model(net.add("Add", y, net.add("MatMul", inner, net.weight(4 * size, size))))


def products(net: Network) -> onnx.ModelProto:
    """Products of free sizes on all sides, either side transposed, in a batch or not."""
    batch = ["b"] if net.maybe() else []
    m, k, n = "m", net.one(["k", *WIDTHS]), net.one(["n", *WIDTHS])
    a, b = net.input(*batch, m, k), net.input(*batch, k, n)
    if net.maybe(0.3):
        a = net.add("Transpose", net.input(*batch, k, m), perm=[*range(len(batch)), -2, -1])
    y = net.add("MatMul", a, b)
    for _ in range(int(net.rng.integers(0, 3))):
        y = net.map(y)
    return net.model(y, *([net.add("Softmax", y, axis=-1)] if net.maybe() else []))


def recurrent(net: Network) -> onnx.ModelProto:
    op, gates = net.one([("LSTM", 4), ("GRU", 3), ("RNN", 1)])
    size, hidden = net.one(WIDTHS), net.one(WIDTHS)
    direction = net.one(["forward", "reverse", "bidirectional"])
    ways = 2 if direction == "bidirectional" else 1
    x = net.input("t", net.one(["n", 1]), size)
    w, r = net.weight(ways, gates * hidden, size), net.weight(ways, gates * hidden, hidden)
    bias = [net.weight(ways, 2 * gates * hidden)] if net.maybe() else []
    y, last = net.add(op, x, w, r, *bias, results=2, hidden_size=hidden, direction=direction)
    return net.model(net.map(y), last)


# ---- the rest -----------------------------------------------------------------------------------


def reductions(net: Network) -> onnx.ModelProto:
    rank = net.one([2, 3, 4])
    shape = [net.one([s, net.one(WIDTHS)]) for s in "abcd"[:rank]]
    x = net.input(*shape)
    y = x
    for _ in range(int(net.rng.integers(1, 4))):
        count = int(net.rng.integers(1, rank + 1))
        axes = sorted(net.rng.permutation(rank)[:count].tolist())
        op = net.one(["ReduceMean", "ReduceMax", "ReduceL2", "ReduceLogSumExp", "ReduceProd"])
        total = net.add(op, y, axes=axes, keepdims=1)
        y = net.map(net.add(net.one(["Sub", "Mul", "Max"]), y, total))
    axis = net.one(range(rank))
    results = [y, net.add(net.one(["ArgMax", "ArgMin"]), y, axis=axis, keepdims=0)]
    if net.maybe():
        results.append(net.add("CumSum", y, net.constant(np.array(axis))))
    if net.maybe():
        results.append(net.add("Softmax", y, axis=axis))
    return net.model(*results)


def movement(net: Network) -> onnx.ModelProto:
    """Transposes, parts, joins, padding, elements chosen by others."""
    rank = net.one([2, 3, 4])
    shape = [net.one([s, net.one(WIDTHS)]) for s in "abcd"[:rank]]
    x = net.input(*shape)
    for _ in range(int(net.rng.integers(2, 6))):
        x = _MOVES[net.one(list(_MOVES))](net, x, rank)
        x = net.map(x) if net.maybe(0.3) else x
    return net.model(x)


def _gather(net: Network, x: str, rank: int) -> str:
    return net.add("Gather", x, net.constant(np.array([0, 2, 1, 0])), axis=net.one(range(rank)))


def _slice(net: Network, x: str, rank: int) -> str:
    start, end = net.one([(0, -1), (1, 2**31), (-1, -(2**31))])
    step = -1 if start < 0 else net.one([1, 2])
    parts = [np.array([v]) for v in (start, end, net.one(range(rank)), step)]
    return net.add("Slice", x, *map(net.constant, parts))


def _pad(net: Network, x: str, rank: int) -> str:
    pads = np.array([net.one([0, 1, 3]) for _ in range(2 * rank)])
    return net.add("Pad", x, net.constant(pads), mode=net.one(["constant", "edge"]))


_MOVES: dict[str, Callable[[Network, str, int], str]] = {
    "transpose": lambda net, x, rank: net.add("Transpose", x, perm=net.rng.permutation(rank)),
    "concat": lambda net, x, rank: net.add("Concat", x, x, axis=net.one(range(rank))),
    "where": lambda net, x, _: net.add("Where", net.add("Greater", x, net.map(x)), x, net.map(x)),
    "gather": _gather,
    "slice": _slice,
    "pad": _pad,
}

FAMILIES: dict[str, Callable[[Network], onnx.ModelProto]] = {
    f.__name__: f for f in (images, attention, products, recurrent, reductions, movement)
}


def random_model(seed: int) -> tuple[str, onnx.ModelProto]:
    """A model and its name; families take turns."""
    family = list(FAMILIES)[seed % len(FAMILIES)]
    return f"{family}-{seed}", FAMILIES[family](Network(seed))
