"""Random nodes of ONNX: every type that an operator claims, odd, single and empty extents, axes
from either end, broadcasting, ties, NaN and infinities.

`random_node(op, seed)` is the same node in every process.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np

FLOATS = ("float32", "float64", "float16", "bfloat16")
SIGNED = ("int8", "int16", "int32", "int64")
UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
NUMBERS = (*FLOATS, *SIGNED, *UNSIGNED)
ALL = (*NUMBERS, "bool")
WIDE = ("float32", "float64", "int32", "int64")


@dataclass
class Node:
    op: str
    operands: list[Any]
    attrs: dict[str, Any] = field(default_factory=dict[str, Any])
    outputs: int = 1
    #: Places of operands that are weights of the model, and not its inputs.
    constants: Sequence[int] = ()


class Draw:
    """Random choices."""

    def __init__(self, seed: Sequence[int]) -> None:
        self.rng = np.random.default_rng(list(seed))

    def of(self, choices: Sequence[Any]) -> Any:
        return choices[int(self.rng.integers(len(choices)))]

    def int(self, low: int, high: int) -> int:
        return int(self.rng.integers(low, high + 1))

    def chance(self, share: float = 0.5) -> bool:
        return bool(self.rng.random() < share)

    def shape(self, low: int = 0, high: int = 4, empty: float = 0.06) -> list[int]:
        extents = (1, 2, 3, 4, 5, 7, 9)
        return [0 if self.chance(empty) else self.of(extents) for _ in range(self.int(low, high))]

    def under(self, shape: Sequence[int]) -> list[int]:
        """A shape that is broadcast with `shape`."""
        start = self.int(0, len(shape)) if self.chance(0.4) else 0
        return [1 if self.chance(0.3) else d for d in shape[start:]]

    def axis(self, rank: int) -> int:
        return self.int(-rank, rank - 1)

    def axes(self, rank: int) -> Any:
        found = self.rng.permutation(rank)[: self.int(1, rank)]
        return np.where(self.rng.random(found.shape) < 0.4, found - rank, found).astype(np.int64)

    def array(self, dtype: str, shape: Sequence[int], special: float = 0.3, most: int = 0) -> Any:
        """Elements of any size, or up to `most`; floats now and then NaN or infinite."""
        held = np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
        if dtype == "bool":
            return self.rng.random(shape) < 0.5
        if dtype in (*SIGNED, *UNSIGNED):
            limits: Any = np.iinfo(dtype)
            low = 0 if dtype in UNSIGNED else -(most or 9)
            if not most and self.chance(0.3):
                return self.rng.integers(limits.min, limits.max, shape, held, endpoint=True)
            return self.rng.integers(low, (most or 9) + 1, shape).astype(held)
        values = np.asarray(self.rng.standard_normal(shape) * (most or self.of((1, 3, 20))))
        if values.size and self.chance(special):
            for value in (np.nan, np.inf, -np.inf, 0.0):
                values.reshape(-1)[self.int(0, values.size - 1)] = value
        return (np.round(values) if self.chance(0.2) else values).astype(held)


Family = Callable[[Draw, str], Node]
FAMILIES: dict[str, Family] = {}


def family(names: str) -> Callable[[Family], Family]:
    def add(made: Family) -> Family:
        FAMILIES.update(dict.fromkeys(names.split(), made))
        return made

    return add


def random_node(op: str, seed: int) -> Node:
    return FAMILIES[op](Draw([zlib.crc32(op.encode()), seed]), op)


# ---- elements -----------------------------------------------------------------------------------


@family("Sqrt Exp Log Tanh Erf Floor Round Reciprocal Softplus Mish IsNaN")
def of_floats(draw: Draw, op: str) -> Node:
    return Node(op, [draw.array(draw.of(FLOATS), draw.shape())])


@family("Abs Sign Shrink ThresholdedRelu Relu Neg")
def of_numbers(draw: Draw, op: str) -> Node:
    kinds = {"Relu": (*FLOATS, *SIGNED), "Neg": (*FLOATS, *SIGNED), "ThresholdedRelu": FLOATS}
    return Node(op, [draw.array(draw.of(kinds.get(op, NUMBERS)), draw.shape(), most=100)])


@family("Add Sub Mul Div Mod Less Min Max")
def of_two(draw: Draw, op: str) -> Node:
    kind, shape = draw.of(NUMBERS), draw.shape()
    left, right = (draw.array(kind, draw.under(shape)) for _ in range(2))
    if op in ("Div", "Mod") and kind not in FLOATS:
        right = np.asarray(np.where(right == 0, 3, right)).astype(right.dtype)
    return Node(op, [left, right], {"fmod": int(kind in FLOATS)} if op == "Mod" else {})


@family("Where Clip BitShift")
def of_several(draw: Draw, op: str) -> Node:
    shape = draw.shape()
    if op == "BitShift":
        kind = draw.of(UNSIGNED)
        by = draw.rng.integers(0, np.iinfo(kind).bits, draw.under(shape)).astype(kind)
        way = {"direction": draw.of(("LEFT", "RIGHT"))}
        return Node(op, [draw.array(kind, draw.under(shape)), by], way)
    if op == "Clip":
        kind = draw.of(NUMBERS)
        bounds = [draw.array(kind, [], 0) if draw.chance(0.7) else None for _ in range(2)]
        return Node(op, [draw.array(kind, shape), *bounds])
    kind = draw.of(ALL)
    operands = [draw.array(k, draw.under(shape)) for k in ("bool", kind, kind)]
    return Node(op, operands)


# ---- along axes ---------------------------------------------------------------------------------


@family("ReduceSum ReduceMean ReduceMax ReduceMin ReduceProd ReduceL2 ReduceLogSumExp")
def reductions(draw: Draw, op: str) -> Node:
    shape = draw.shape(empty=0.12)
    kinds = (*WIDE, "float16", *(("int8", "uint8") if op in ("ReduceMax", "ReduceMin") else ()))
    x = draw.array(draw.of(kinds), shape, special=0.2, most=3)
    axes = draw.axes(len(shape)) if shape and draw.chance(0.8) else None
    return Node(op, [x, axes], {"keepdims": draw.int(0, 1)}, constants=(1,))


@family("ArgMax ArgMin Softmax LogSoftmax Hardmax CumSum TopK")
def along_an_axis(draw: Draw, op: str) -> Node:
    is_sum, takes_all = op == "CumSum", op in ("ArgMax", "ArgMin", "TopK")
    shape = draw.shape(1, empty=0.0 if takes_all else 0.06)
    axis = draw.axis(len(shape))
    kind = draw.of(WIDE if is_sum else (*WIDE, "int8", "float16") if takes_all else FLOATS)
    # Few different elements, so that there are ties.
    x = np.round(draw.array(kind, shape, special=0, most=3)).astype(kind if takes_all else None)
    flags = {n: draw.int(0, 1) for n in _FLAGS.get(op, ())}
    if is_sum:
        return Node(op, [x, np.array(axis)], flags, constants=(1,))
    if op != "TopK":
        return Node(op, [x], {"axis": axis, **flags})
    count = np.array([draw.int(0, shape[axis])])
    return Node(op, [x, count], {"axis": axis, **flags}, outputs=2, constants=(1,))


_FLAGS = {
    "ArgMax": ("keepdims", "select_last_index"),
    "ArgMin": ("keepdims", "select_last_index"),
    "CumSum": ("exclusive", "reverse"),
    "TopK": ("largest",),
}


@family("MeanVarianceNormalization InstanceNormalization LayerNormalization")
def normalized(draw: Draw, op: str) -> Node:
    shape = draw.shape(3 if op[0] == "I" else 4, 4, empty=0.0)
    x = draw.array("float32", shape, special=0, most=3)
    if op == "MeanVarianceNormalization":
        # Of one element alone the deviation is 0, and the peer gives NaN.
        return Node(op, [x], {"axes": draw.of(([0, 2, 3], [0, 1, 2, 3], [0, 1, 3]))})
    axis = draw.int(1, 3)
    own = shape[1:2] if op[0] == "I" else shape[axis:]
    factors = [draw.array("float32", own, special=0) for _ in range(2)]
    attrs = {"epsilon": 1e-2, **({} if op[0] == "I" else {"axis": axis})}
    return Node(op, [x, *factors], attrs)


# ---- products -----------------------------------------------------------------------------------


@family("MatMul Gemm")
def products(draw: Draw, op: str) -> Node:
    rows, depth, columns = draw.shape(3, 3, empty=0.12)
    kind = draw.of((*WIDE, "float16"))
    if op == "MatMul":
        batch = draw.shape(0, 2)
        left, right = [*draw.under(batch), rows, depth], [*draw.under(batch), depth, columns]
        left, right = draw.of([(left, right), (left, right), ([depth], right), (left, [depth])])
        return Node(op, [draw.array(kind, s, special=0, most=9) for s in (left, right)])
    turned = [draw.int(0, 1) for _ in range(2)]
    shapes = [[rows, depth][:: 1 - 2 * turned[0]], [depth, columns][:: 1 - 2 * turned[1]]]
    added = draw.of([None, [], [1], [columns], [rows, 1], [rows, columns]])
    operands = [draw.array(kind, s, special=0, most=9) for s in shapes]
    operands += [] if added is None else [draw.array(kind, added, special=0, most=9)]
    factors = {"alpha": draw.of((1.0, 2.0)), "beta": draw.of((1.0, 2.0))}
    return Node(op, operands, {"transA": turned[0], "transB": turned[1], **factors})


@family("Conv MaxPool AveragePool")
def windows(draw: Draw, op: str) -> Node:
    rank, groups = draw.int(1, 3), draw.of((1, 1, 2, 3))
    kernel = [draw.int(1, 3) for _ in range(rank)]
    attrs: dict[str, Any] = {"kernel_shape": kernel, "strides": [draw.int(1, 3) for _ in kernel]}
    if draw.chance():
        attrs["pads"] = [draw.int(0, k - 1) for k in (*kernel, *kernel)]
    elif draw.chance():
        attrs["auto_pad"] = draw.of(("SAME_UPPER", "SAME_LOWER", "VALID"))
    elif op != "AveragePool":
        attrs["dilations"] = [draw.int(1, 2) for _ in kernel]
    channels = groups * draw.int(1, 3)
    image = [draw.int(1, 2), channels, *[draw.of((5, 6, 7, 9)) for _ in kernel]]
    if op != "Conv":
        attrs["ceil_mode"] = draw.int(0, 1)
        return Node(op, [draw.array(draw.of(("float32", "float64")), image, special=0)], attrs)
    weight = [groups * draw.int(1, 3), channels // groups, *kernel]
    operands = [draw.array("float32", s, special=0) for s in (image, weight, weight[:1])]
    return Node(op, operands, {**attrs, "group": groups}, constants=(1, 2))


# ---- movement -----------------------------------------------------------------------------------

_FAR = (2**31 - 1, -(2**31), 2**63 - 1, -(2**63) + 1)


@family("Slice")
def slices(draw: Draw, op: str) -> Node:
    shape = draw.shape(1)
    axes = draw.axes(len(shape))
    steps = np.array([draw.of((1, 1, 2, 3, -1, -2, 100, -100)) for _ in axes])
    near = [(-shape[a] - 3, shape[a] + 3) for a in axes]
    starts, ends = (
        np.array([draw.int(*b) if draw.chance(0.7) else draw.of(_FAR) for b in near])
        for _ in range(2)
    )
    # Backwards, the peer takes a far end for "up to the front".
    ends = np.where((steps < 0) & (ends >= 2**31 - 1), -(2**31), ends)
    x = draw.array(draw.of(ALL), shape)
    return Node(op, [x, starts, ends, axes, steps], constants=draw.of([(1, 2, 3, 4), (3, 4)]))


@family("Gather GatherElements GatherND")
def gathers(draw: Draw, op: str) -> Node:
    shape = draw.shape(1, empty=0.0)
    x, axis = draw.array(draw.of(ALL), shape), draw.axis(len(shape))
    if op == "GatherND":
        depth = draw.int(1, len(shape))
        count = draw.of([(), (3,), (0,), (2, 1)])
        places = [draw.rng.integers(-d, d, count) for d in shape[:depth]]
        return Node(op, [x, np.stack(places, -1)])
    of = draw.shape(0, 2) if op == "Gather" else [draw.int(1, d) for d in shape]
    indices = draw.rng.integers(-shape[axis], shape[axis], of)
    return Node(op, [x, np.asarray(indices, draw.of(("int32", "int64")))], {"axis": axis})


@family("ScatterElements ScatterND")
def scatters(draw: Draw, op: str) -> Node:
    shape = draw.shape(1, 3, empty=0.0)
    kind, way = draw.of(WIDE), draw.of(("add", "mul", "max", "min"))
    x, axis = draw.array(kind, shape, special=0, most=3), draw.axis(len(shape))
    if op == "ScatterND":
        indices = draw.rng.integers(-shape[0], shape[0], (draw.int(0, 4), 1))
        updates = [len(indices), *shape[1:]]
        attrs = {"reduction": way}
    else:
        updates = [draw.int(1, d) for d in shape]
        indices = draw.rng.integers(-shape[axis], shape[axis], updates)
        attrs = {"reduction": way, "axis": axis}
    return Node(op, [x, indices, draw.array(kind, updates, special=0, most=3)], attrs)


@family("Concat Pad Transpose Expand Tile Trilu")
def moved(draw: Draw, op: str) -> Node:
    return _MOVED[op](draw, draw.of(ALL), draw.shape(1))


def _concat(draw: Draw, kind: str, shape: list[int]) -> Node:
    axis = draw.axis(len(shape))
    sizes = [draw.of((0, 1, 3, 5)) for _ in range(draw.int(1, 4))]
    parts = [[s if n == axis % len(shape) else d for n, d in enumerate(shape)] for s in sizes]
    return Node("Concat", [draw.array(kind, p) for p in parts], {"axis": axis})


def _pad(draw: Draw, kind: str, shape: list[int]) -> Node:
    shape = [max(1, d) for d in shape]
    mode = draw.of(("constant", "reflect", "edge", "wrap"))
    bounds = {"constant": (-1, 3), "edge": (0, 3)}
    pads = [draw.int(*bounds.get(mode, (0, d - 1))) if d > 2 else 0 for d in (*shape, *shape)]
    fill = draw.array(kind, []) if mode == "constant" and draw.chance() else None
    return Node("Pad", [draw.array(kind, shape), np.array(pads), fill], {"mode": mode}, 1, (1,))


def _transpose(draw: Draw, kind: str, shape: list[int]) -> Node:
    order = {"perm": draw.rng.permutation(len(shape)).tolist()} if draw.chance(0.8) else {}
    return Node("Transpose", [draw.array(kind, shape)], order)


def _expand(draw: Draw, kind: str, shape: list[int]) -> Node:
    return Node("Expand", [draw.array(kind, draw.under(shape)), np.array(shape)], constants=(1,))


def _tile(draw: Draw, kind: str, shape: list[int]) -> Node:
    times = np.array([draw.int(0, 2) for _ in shape])
    return Node("Tile", [draw.array(kind, shape), times], constants=(1,))


def _trilu(draw: Draw, kind: str, shape: list[int]) -> Node:
    shape = [*shape, draw.int(1, 4)]
    return Node("Trilu", [draw.array(kind, shape), np.array(draw.int(-9, 9))], {"upper": 0})


_MOVED: dict[str, Callable[[Draw, str, list[int]], Node]] = {
    "Concat": _concat,
    "Pad": _pad,
    "Transpose": _transpose,
    "Expand": _expand,
    "Tile": _tile,
    "Trilu": _trilu,
}
