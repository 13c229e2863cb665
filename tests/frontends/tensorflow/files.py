"""Small TensorFlow files for tests, made without TensorFlow by the reader's own list of fields."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.frontends.tensorflow import from_tensorflow
from tilewright.frontends.tensorflow.messages import SCHEMA
from tilewright.graph import evaluate

#: TensorFlow's numbers for the element types of tests.
TYPES = {"float32": 1, "int32": 3, "object": 7, "int64": 9, "bool": 10}

Fields = Mapping[str, Any]


# ---- messages -----------------------------------------------------------------------------------


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    made = bytearray()
    while value >= 0x80:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*made, value])


def _field(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


def encoded(kind: str, values: Fields) -> bytes:
    """A message of a kind from its fields."""
    rows = {row[0]: (number, *row[1:]) for number, row in SCHEMA.kinds[kind].items()}
    made = b""
    for name, value in values.items():
        number, inner, count = rows[name]
        if count == "map":
            for key, item in value.items():
                content = item.encode() if inner == "text" else encoded(inner, item)
                made += _field(number, _field(1, key.encode()) + _field(2, content))
        else:
            for item in value if count == "many" else [value]:
                made += _one(number, inner, item)
    return made


def _one(number: int, kind: str, value: Any) -> bytes:
    if kind in ("int", "bool"):
        return varint(number << 3) + varint(int(value))
    if kind == "float":
        return varint(number << 3 | 5) + struct.pack("<f", value)
    if kind == "text":
        return _field(number, value.encode())
    return _field(number, bytes(memoryview(value)) if kind == "bytes" else encoded(kind, value))


def shape(dims: Sequence[int | None]) -> Fields:
    return {"dim": [{"size": -1 if d is None else d} for d in dims]}


def tensor(array: Any) -> Fields:
    found = np.asarray(array)
    found = found.astype(np.float32) if found.dtype == np.float64 else found
    found = found.astype(object) if found.dtype.kind == "U" else found
    fields: dict[str, Any] = {"dtype": TYPES[found.dtype.name], "tensor_shape": shape(found.shape)}
    if found.dtype == object:
        return fields | {"string_val": [str(s).encode() for s in found.ravel()]}
    return fields | {"tensor_content": found.tobytes()}


def attr(value: Any) -> Fields:
    """An attribute by what its Python value is."""
    if isinstance(value, dict):
        return value
    if isinstance(value, bool):
        return {"b": value}
    if isinstance(value, int):
        return {"i": value}
    if isinstance(value, float):
        return {"f": value}
    if isinstance(value, str):
        return {"s": value.encode()}
    if isinstance(value, list):
        return {"list": {"i": value}}
    return {"tensor": tensor(value)}


def kind(name: str) -> Fields:
    """An element type as an attribute."""
    return {"type": TYPES[name]}


def function(name: str) -> Fields:
    return {"func": {"name": name}}


def node(op: str, name: str, *inputs: str, **attrs: Any) -> Fields:
    made = {k: attr(v) for k, v in attrs.items()}
    return {"name": name, "op": op, "input": list(inputs), "attr": made}


def const(name: str, value: Any) -> Fields:
    made = tensor(value)
    return node("Const", name, value={"tensor": made}, dtype={"type": made["dtype"]})


def placeholder(name: str, *dims: int | None, dtype: str = "float32") -> Fields:
    return node("Placeholder", name, dtype=kind(dtype), shape={"shape": shape(dims)})


def body(
    name: str, params: Sequence[str], nodes: Sequence[Fields], results: Mapping[str, str]
) -> Fields:
    """A function of the library."""
    signature = {"name": name, "input_arg": [{"name": p} for p in params]}
    signature["output_arg"] = [{"name": r} for r in results]
    return {"signature": signature, "node_def": list(nodes), "ret": dict(results)}


def graph(*nodes: Fields, functions: Sequence[Fields] = ()) -> Fields:
    return {"node": list(nodes), "library": {"function": list(functions)}}


def frozen(*nodes: Fields, functions: Sequence[Fields] = ()) -> bytes:
    return encoded("GraphDef", graph(*nodes, functions=functions))


# ---- checkpoints --------------------------------------------------------------------------------


def table(entries: Mapping[bytes, bytes]) -> bytes:
    """A sorted table of one block, in which keys share what they begin with."""
    block, before = b"", b""
    for key, value in sorted(entries.items()):
        shared = 0
        while shared < min(len(key), len(before)) and key[shared] == before[shared]:
            shared += 1
        block += varint(shared) + varint(len(key) - shared) + varint(len(value))
        block += key[shared:] + value
        before = key
    block += struct.pack("<II", 0, 1)
    place = varint(0) + varint(len(block))
    index = varint(0) + varint(1) + varint(len(place)) + b"z" + place + struct.pack("<II", 0, 1)
    trailer = bytes(5)
    start = len(block) + len(trailer)
    footer = varint(0) + varint(0) + varint(start) + varint(len(index))
    footer += bytes(40 - len(footer)) + struct.pack("<Q", 0xDB4775248B80FB57)
    return block + trailer + index + trailer + footer


def bundle(folder: Path, tensors: Mapping[str, Any]) -> None:
    """The files of a checkpoint."""
    folder.mkdir(parents=True, exist_ok=True)
    entries, data = {b"": encoded("BundleHeader", {"num_shards": 1})}, b""
    for key, value in tensors.items():
        array = np.asarray(value)
        raw = array.tobytes()
        fields = {"dtype": TYPES[array.dtype.name], "shape": shape(array.shape)}
        fields |= {"offset": len(data), "size": len(raw)}
        entries[key.encode()] = encoded("BundleEntry", fields)
        data += raw
    (folder / "variables.index").write_bytes(table(entries))
    (folder / "variables.data-00000-of-00001").write_bytes(data)


def saved_graph(made: Fields, inputs: Mapping[str, Fields], outputs: Mapping[str, str]) -> Fields:
    """The graph of a SavedModel with one signature."""
    signature = {
        "inputs": dict(inputs),
        "outputs": {k: {"name": v, "dtype": 1} for k, v in outputs.items()},
    }
    meta = {
        "meta_info_def": {"tags": ["serve"]},
        "graph_def": made,
        "signature_def": {"serving_default": signature},
    }
    return {"schema_version": 1, "meta_graphs": [meta]}


def saved_model(
    folder: Path,
    made: Fields,
    inputs: Mapping[str, Fields],
    outputs: Mapping[str, str],
    variables: Mapping[str, Any] | None = None,
) -> Path:
    """A SavedModel with one signature."""
    folder.mkdir(parents=True, exist_ok=True)
    saved = encoded("SavedModel", saved_graph(made, inputs, outputs))
    (folder / "saved_model.pb").write_bytes(saved)
    if variables is not None:
        bundle(folder / "variables", variables)
    return folder


def info(name: str, *dims: int | None, dtype: str = "float32") -> Fields:
    return {"name": name, "dtype": TYPES[dtype], "tensor_shape": shape(dims)}


# ---- answers ------------------------------------------------------------------------------------


def results(source: Any, *arrays: Any, **options: Any) -> list[Any]:
    """What a model gives for these arrays, by the references of our operators."""
    return evaluate(from_tensorflow(source, **options), [np.asarray(a) for a in arrays])


def applied(
    op: str, *operands: Any, constants: Mapping[int, Any] | None = None, **attrs: Any
) -> Any:
    """What one operator gives; some operands are constants, by their places."""
    constants = constants or {}
    given = iter(operands)
    count = len(operands) + len(constants)
    nodes, names, arrays = list[Fields](), list[str](), list[Any]()
    for k in range(count):
        names.append(f"x{k}")
        if k in constants:
            nodes.append(const(f"x{k}", constants[k]))
        else:
            array = np.asarray(next(given))
            arrays.append(array)
            nodes.append(placeholder(f"x{k}", *array.shape, dtype=array.dtype.name))
    return results(frozen(*nodes, node(op, "it", *names, **attrs)), *arrays)[0]
