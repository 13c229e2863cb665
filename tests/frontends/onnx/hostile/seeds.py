"""Small sound models that use much of the format; they are damaged by `damage.py`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
from onnx import helper

from tests.frontends.onnx.models import info, make, node, out


def weights(*shape: int) -> Any:
    """Numbers that follow from the shape, whatever else was made before."""
    return np.random.default_rng(shape).standard_normal(shape).astype(np.float32)


def ints(*values: int) -> Any:
    return np.array(values, np.int64)


def network() -> onnx.ModelProto:
    """A convolution, its normalisation, pooling, shape arithmetic, a product."""
    nodes = [
        node("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1], strides=[2, 2]),
        node("BatchNormalization", ["a", "s", "b", "m", "v"], ["n"]),
        node("MaxPool", ["n"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        node("Shape", ["p"], ["d"]),
        node("Slice", ["d", "zero", "one"], ["batch"]),
        node("Concat", ["batch", "rest"], ["target"], axis=0),
        node("Reshape", ["p", "target"], ["flat"]),
        node("Gemm", ["flat", "g"], ["h"], transB=1, alpha=0.5),
        node("TopK", ["h", "two"], ["y", "i"], axis=-1),
    ]
    constants = {"w": weights(4, 3, 3, 3), "g": weights(5, 64), "zero": ints(0)}
    constants |= {n: np.abs(weights(4)) for n in "sbmv"}
    constants |= {"one": ints(1), "rest": ints(-1), "two": ints(2)}
    return make(nodes, [info("x", shape=["n", 3, 16, 16])], ["y", "i"], constants)


def program() -> onnx.ModelProto:
    """A loop with a branch in it, a sequence, and a function that takes an attribute."""
    leaky = node("LeakyRelu", ["a"], ["b"])
    leaky.attribute.add(name="alpha", ref_attr_name="slope", type=onnx.AttributeProto.FLOAT)
    imports = [helper.make_opsetid("", 18)]
    leak = helper.make_function("my", "Leak", ["a"], ["b"], [leaky], imports, ["slope"])
    sides = [
        helper.make_graph([node(op, ["v"], ["t"])], op, [], [out("t")]) for op in ("Neg", "Relu")
    ]
    body = helper.make_graph(
        [
            node("Leak", ["u"], ["v"], domain="my", slope=0.2),
            node("If", ["k"], ["next"], then_branch=sides[0], else_branch=sides[1]),
            node("Identity", ["c"], ["go"]),
        ],
        "body",
        [out("i"), out("c"), out("u")],
        [out("go"), out("next"), out("v")],
    )
    nodes = [
        node("Loop", ["count", "", "x"], ["last", "all"], body=body),
        node("SplitToSequence", ["all"], ["q"], axis=0, keepdims=0),
        node("ConcatFromSequence", ["q"], ["y"], axis=-1),
    ]
    inputs = [info("x", shape=[2, "n"]), info("k", "bool")]
    return make(nodes, inputs, ["last", "y"], {"count": np.array(3)}, [leak], domains={"my": 1})


def recurrent() -> onnx.ModelProto:
    """An LSTM, attention by hand, and elements by index."""
    nodes = [
        node("LSTM", ["x", "w", "r"], ["s", "h"], hidden_size=3, direction="forward"),
        node("Squeeze", ["s", "one"], ["t"]),
        node("Transpose", ["t"], ["u"], perm=[1, 2, 0]),
        node("MatMul", ["u", "p"], ["e"]),
        node("Softmax", ["e"], ["a"], axis=-1),
        node("ArgMax", ["a"], ["best"], axis=-1, keepdims=0),
        node("OneHot", ["best", "depth", "values"], ["hot"], axis=-1),
        node("ReduceMean", ["hot", "one"], ["y"], keepdims=0),
        node("GatherElements", ["a", "places"], ["g"], axis=2),
    ]
    constants = {"w": weights(1, 12, 2), "r": weights(1, 12, 3), "p": weights(4, 4)}
    constants |= {"one": ints(1), "depth": np.array(4), "values": weights(2)}
    constants |= {"places": np.ones((2, 3, 1), np.int64)}
    return make(nodes, [info("x", shape=[4, 2, 2])], ["y", "g"], constants)


def quantized() -> onnx.ModelProto:
    """Whole numbers with scales, by channel and by tensor."""
    nodes = [
        node("QuantizeLinear", ["x", "sx", "zx"], ["q"]),
        node("QLinearConv", ["q", "sx", "zx", "w", "sw", "zw", "sy", "zx"], ["c"], group=1),
        node("DequantizeLinear", ["c", "sy", "zx"], ["f"], axis=1),
        node("DynamicQuantizeLinear", ["f"], ["d", "sd", "zd"]),
        node("Cast", ["d"], ["n"], to=onnx.TensorProto.INT32),
        node("ReduceMax", ["n", "axes"], ["y"]),
        node("Clip", ["f", "low", "high"], ["z"]),
    ]
    w = np.random.default_rng(0).integers(-9, 9, (2, 1, 2, 2)).astype(np.int8)
    constants = {"w": w, "sx": np.float32(0.1), "zx": np.uint8(128), "sy": np.float32(0.2)}
    constants |= {"sw": np.array([0.1, 0.2], np.float32), "zw": np.zeros(2, np.int8)}
    constants |= {"axes": ints(1, 2), "low": np.float32(-3), "high": np.float32(3)}
    return make(nodes, [info("x", shape=["n", 1, 4, 4])], ["y", "z"], constants)


def movement() -> onnx.ModelProto:
    """Sizes and places that are inputs; padding, tiles, ranges, scattering, what is not zero."""
    nodes = [
        node("Slice", ["x", "a", "b", "axis"], ["s"]),
        node("Pad", ["s", "pads"], ["p"], mode="constant"),
        node("Tile", ["p", "repeats"], ["t"]),
        node("Range", ["zero", "stop", "step"], ["r"]),
        node("Add", ["t", "r"], ["u"]),
        node("NonZero", ["u"], ["places"]),
        node("CumSum", ["u", "first"], ["c"], reverse=1),
        node("ScatterND", ["c", "where", "what"], ["y"], reduction="add"),
        node("Resize", ["image", "", "scales"], ["z"], mode="linear"),
    ]
    inputs = [info("x", shape=[3, "n"]), info("a", "int64", [1]), info("b", "int64", [1])]
    inputs.append(info("image", shape=[1, 1, 3, 3]))
    constants = {"axis": ints(0), "pads": ints(1, 0, 0, 0), "repeats": ints(2, 1)}
    constants |= {"zero": np.float32(0), "stop": np.float32(2), "step": np.float32(1)}
    constants |= {"first": np.array(0), "where": ints(0)[None], "what": weights(1, 2)}
    constants |= {"scales": np.array([1, 1, 2, 1.5], np.float32)}
    return make(nodes, inputs, ["y", "places", "z"], constants)


def nested() -> onnx.ModelProto:
    """Branches inside a scan, functions that call functions, text."""
    imports = [helper.make_opsetid("", 18), helper.make_opsetid("my", 1)]
    inner = helper.make_function("my", "In", ["a"], ["b"], [node("Exp", ["a"], ["b"])], imports)
    twice = [node("In", ["a"], ["c"], domain="my"), node("Mul", ["c", "a"], ["b"])]
    outer = helper.make_function("my", "Out", ["a"], ["b"], twice, imports)
    then = helper.make_graph([node("Out", ["e"], ["t"], domain="my")], "then", [], [out("t")])
    other = helper.make_graph([node("Sqrt", ["e"], ["t"])], "other", [], [out("t")])
    body = helper.make_graph(
        [
            node("Add", ["acc", "e"], ["sum"]),
            node("If", ["k"], ["row"], then_branch=then, else_branch=other),
        ],
        "body",
        [out("acc"), out("e")],
        [out("sum"), out("row")],
    )
    nodes = [
        node("Scan", ["start", "x"], ["total", "rows"], body=body, num_scan_inputs=1),
        node("StringConcat", ["text", "text"], ["both"]),
        node("Einsum", ["rows", "m"], ["y"], equation="ij,jk->ik"),
    ]
    inputs = [info("x", shape=["n", 2]), info("k", "bool"), info("text", "string", [2])]
    constants = {"start": weights(2), "m": weights(2, 3)}
    functions = [inner, outer]
    return make(nodes, inputs, ["total", "y", "both"], constants, functions, domains={"my": 1})


def with_files(folder: Path) -> onnx.ModelProto:
    """Weights in a file beside the model, which is written too."""
    data = {"w": weights(2, 3), "b": weights(3)}
    (folder / "weights.bin").write_bytes(b"".join(a.tobytes() for a in data.values()))
    nodes = [node("MatMul", ["x", "w"], ["p"]), node("Add", ["p", "b"], ["y"])]
    model = make(nodes, [info("x", shape=["n", 2])], ["y"], data)
    offset = 0
    for tensor in model.graph.initializer:
        size = len(tensor.raw_data)
        tensor.ClearField("raw_data")
        tensor.data_location = onnx.TensorProto.EXTERNAL
        entries = {"location": "weights.bin", "offset": str(offset), "length": str(size)}
        for key, value in entries.items():
            tensor.external_data.add(key=key, value=value)
        offset += size
    return model


SEEDS: Final[dict[str, Callable[[], onnx.ModelProto]]] = {
    "network": network,
    "program": program,
    "recurrent": recurrent,
    "quantized": quantized,
    "movement": movement,
    "nested": nested,
}
