"""MXNet's symbols and files of parameters, written by hand."""

from __future__ import annotations

import json
import struct
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
_TYPES = {"float32": 0, "float64": 1, "float16": 2, "uint8": 3, "int32": 4, "int8": 5, "int64": 6}


def params(arrays: dict[str, Array], version: int = 2) -> bytes:
    """A file of parameters; version 0 is the form before there was a number for it."""
    made = struct.pack("<QQQ", 0x112, 0, len(arrays))
    for array in arrays.values():
        made += _array(array, version)
    made += struct.pack("<Q", len(arrays))
    for name in arrays:
        made += struct.pack("<Q", len(name.encode())) + name.encode()
    return made


def _array(array: Array, version: int) -> bytes:
    rank, kind = array.ndim, _TYPES[array.dtype.name]
    if version == 0:
        head = struct.pack(f"<I{rank}I", rank, *array.shape)
    else:
        head = struct.pack("<I", 0xF993FAC7 + version)
        head += struct.pack("<i", 0) if version > 1 else b""
        head += struct.pack(f"<I{rank}q", rank, *array.shape)
    return head + struct.pack("<iii", 1, 0, kind) + array.tobytes()


class Net:
    """A symbol that is written node by node; `keys` is where attributes stand."""

    def __init__(self, keys: str = "attrs") -> None:
        self.nodes: list[dict[str, Any]] = []
        self.arrays: dict[str, Array] = {}
        self._keys = keys

    def var(self, name: str, array: Array | None = None, **attrs: Any) -> int:
        if array is not None:
            self.arrays[f"arg:{name}"] = np.asarray(array)
        return self._add("null", name, [], attrs)

    def node(self, op: str, *inputs: Any, name: str = "", **attrs: Any) -> int:
        """Add a node; inputs are numbers of nodes, or pairs with one of their outputs."""
        pairs = [[*i, 0] if isinstance(i, tuple) else [i, 0, 0] for i in inputs]
        return self._add(op, name or f"{op.strip('_')}{len(self.nodes)}", pairs, attrs)

    def _add(self, op: str, name: str, inputs: Any, attrs: dict[str, Any]) -> int:
        entry = {"op": op, "name": name, "inputs": inputs}
        inner = attrs.pop("subgraphs", None)
        entry[self._keys] = {k: str(v) for k, v in attrs.items()}
        if inner:
            entry["subgraphs"] = inner
        self.nodes.append(entry)
        return len(self.nodes) - 1

    def graph(self, *heads: Any) -> dict[str, Any]:
        pairs = [[*h, 0] if isinstance(h, tuple) else [h, 0, 0] for h in heads]
        variables = [k for k, n in enumerate(self.nodes) if n["op"] == "null"]
        return {"nodes": self.nodes, "arg_nodes": variables, "heads": pairs}

    def files(self, *heads: Any, version: int = 2) -> tuple[bytes, bytes]:
        symbol = json.dumps(self.graph(*heads), indent=2).encode()
        return symbol, params(self.arrays, version)


def classifier(keys: str = "attrs", seed: int = 0) -> tuple[Net, int]:
    """Convolution, batch normalisation, pooling, a dense layer and a loss, as Module saves them."""
    rng = np.random.default_rng(seed)

    def normal(*shape: int) -> Array:
        return (rng.standard_normal(shape) * 0.3).astype(np.float32)

    net = Net(keys)
    x = net.var("data")
    weight, bias = net.var("conv_weight", normal(4, 3, 3, 3)), net.var("conv_bias", normal(4))
    x = net.node("Convolution", x, weight, bias, kernel="(3L, 3L)", num_filter=4, pad="(1, 1)")
    gamma, beta = net.var("bn_gamma", normal(4)), net.var("bn_beta", normal(4))
    states = {"bn_moving_mean": normal(4), "bn_moving_var": normal(4) ** 2 + 0.5}
    inner = [net.var(name) for name in states] if keys == "attrs" else []
    net.arrays |= {f"aux:{k}": v for k, v in states.items()}
    x = net.node("BatchNorm", x, gamma, beta, *inner, name="bn", fix_gamma=True, eps=0.001)
    x = net.node("Activation", x, act_type="relu")
    x = net.node("Pooling", x, kernel="(2, 2)", stride="(2, 2)", pool_type="max")
    x = net.node("Flatten", x)
    weight, bias = net.var("fc_weight", normal(5, 36)), net.var("fc_bias", normal(5))
    x = net.node("FullyConnected", x, weight, bias, num_hidden=5)
    return net, net.node("SoftmaxOutput", x, net.var("softmax_label"), name="softmax")
