"""Models of Keras and TensorFlow that are sound, to be damaged."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from tests.frontends.keras.files import functional, input_layer, layer
from tests.frontends.tensorflow.files import (
    body,
    bundle,
    const,
    encoded,
    function,
    graph,
    info,
    kind,
    node,
    placeholder,
    saved_graph,
)

#: The file of a SavedModel that holds its graph.
SAVED_GRAPH = "saved_model.pb"


def _real(*shape: int) -> np.ndarray:
    """Numbers that follow from the shape, whatever else was made before."""
    return np.random.default_rng(shape).standard_normal(shape).astype(np.float32)


def _layers() -> list[dict]:
    return [
        input_layer("x", 8, 8, 3),
        layer("Conv2D", "conv", "x", kernel_size=[3, 3], strides=[2, 2], padding="same"),
        layer("BatchNormalization", "norm", "conv", epsilon=1e-3, axis=-1),
        layer("ReLU", "relu", "norm", max_value=6.0),
        layer("MaxPooling2D", "pool", "relu", pool_size=[2, 2], padding="valid"),
        layer("Reshape", "rows", "pool", target_shape=[4, 4]),
        layer("LSTM", "lstm", "rows", units=2, return_sequences=True, activation="tanh"),
        layer("MultiHeadAttention", "heads", "lstm", "lstm", num_heads=2, key_dim=3),
        layer("Add", "sum", ["lstm", "heads"]),
        layer("Flatten", "flat", "sum"),
        layer("Dense", "dense", "flat", units=3, activation="softmax"),
    ]


def _weights() -> dict[str, list]:
    heads = {
        f"layers/multi_head_attention/{p}_dense": [_real(2, 2, 3), _real(2, 3)]
        for p in ("query", "key", "value")
    }
    return {
        "layers/conv2d": [_real(3, 3, 3, 4), _real(4)],
        "layers/batch_normalization": [_real(4), _real(4), _real(4), np.abs(_real(4))],
        "layers/lstm/cell": [_real(4, 8), _real(2, 8), _real(8)],
        **heads,
        "layers/multi_head_attention/output_dense": [_real(2, 3, 2), _real(2)],
        "layers/dense": [_real(8, 3), _real(3)],
    }


def keras_network() -> dict[str, Any]:
    """What `archive` writes to a file."""
    return {"config": functional(_layers(), ["x"], ["dense"]), "weights": _weights()}


def keras_layers() -> dict[str, Any]:
    """What `hdf5` writes to a file."""
    layers = [_layers()[k] for k in (0, 1, 2, 3)]
    layers.append(layer("GlobalAveragePooling2D", "mean", "relu"))
    named = {
        "conv": {"conv/kernel:0": _real(3, 3, 3, 4), "conv/bias:0": _real(4)},
        "norm": {
            f"norm/{k}:0": np.abs(_real(4))
            for k in ("gamma", "beta", "moving_mean", "moving_variance")
        },
    }
    return {"config": functional(layers, ["x"], ["mean"]), "weights": named}


def _nodes() -> tuple[list, list]:
    """A convolution, shape arithmetic, a loop with a list, a branch."""
    condition = body(
        "c",
        ["i", "l", "v"],
        [const("n", np.int32(4)), node("Less", "go", "i", "n:output:0")],
        {"go": "go:z:0"},
    )
    step = body(
        "b",
        ["i", "l", "v"],
        [
            const("one", np.int32(1)),
            node("AddV2", "next", "i", "one:output:0"),
            node("Tanh", "t", "v"),
            node("TensorListSetItem", "set", "l", "i", "t:y:0"),
        ],
        {"i_out": "next:z:0", "l_out": "set:output_handle:0", "v_out": "t:y:0"},
    )
    then = body("t", ["a"], [node("Neg", "m", "a")], {"r": "m:y:0"})
    otherwise = body("e", ["a"], [node("Relu", "m", "a")], {"r": "m:activations:0"})
    nodes = [
        placeholder("x", None, 6, 6, 2),
        const("w", _real(3, 3, 2, 4)),
        node("Conv2D", "conv", "x", "w", strides=[1, 2, 2, 1], padding="SAME", data_format="NHWC"),
        node("Relu", "relu", "conv"),
        node("Shape", "shape", "relu", out_type=kind("int32")),
        const("zero", np.array([0], np.int32)),
        const("one", np.array([1], np.int32)),
        node("StridedSlice", "batch", "shape", "zero", "one", "one", shrink_axis_mask=1),
        const("rest", np.int32(-1)),
        node("Pack", "target", "batch", "rest", axis=0),
        node("Reshape", "flat", "relu", "target"),
        const("start", np.int32(0)),
        const("four", np.int32(4)),
        node("TensorListReserve", "list", "rest", "four", element_dtype=kind("float32")),
        node("While", "loop", "start", "list", "flat", cond=function("c"), body=function("b")),
        const("open", np.array([-1, -1], np.int32)),
        node("TensorListStack", "stack", "loop:1", "open"),
        node("Mean", "mean", "stack", "zero", keep_dims=False),
        const("axes", np.array([0, 1], np.int32)),
        node("Sum", "total", "mean", "axes"),
        const("limit", np.float32(0)),
        node("Greater", "asked", "total", "limit"),
        node("If", "y", "asked", "mean", then_branch=function("t"), else_branch=function("e")),
    ]
    return nodes, [condition, step, then, otherwise]


def graph_fields() -> dict:
    """The graph as fields, from which a message can be made."""
    nodes, functions = _nodes()
    return dict(graph(*nodes, functions=functions))


def saved_fields() -> dict:
    """A SavedModel as fields, from which a message can be made."""
    nodes, functions = _nodes()
    nodes[1] = node("VarHandleOp", "v", shared_name="w")
    nodes.insert(2, node("ReadVariableOp", "w", "v"))
    made = graph(*nodes, functions=functions)
    return dict(saved_graph(made, {"x": info("x:0", None, 6, 6, 2)}, {"y": "y:0"}))


@cache
def saved() -> dict[str, bytes]:
    """The files of a SavedModel by their paths."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / SAVED_GRAPH).write_bytes(encoded("SavedModel", saved_fields()))
        bundle(folder / "variables", {"w": _real(3, 3, 2, 4)})
        return {
            str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()
        }
