"""Small Keras files for tests, made without Keras: a configuration in JSON and weights in HDF5."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping, Sequence
from typing import Any

import h5py
import numpy as np

from tilewright.frontends.keras import from_keras
from tilewright.graph import evaluate

Weights = Mapping[str, Sequence[Any]]


def layer(kind: str, name: str, *inputs: Any, **config: Any) -> dict[str, Any]:
    """An entry of Keras 3; inputs are names of layers, several as one list."""
    given = [_argument(i) for i in inputs]
    node = [{"args": given, "kwargs": {}}] if inputs else []
    config = {"name": name, "trainable": True, "dtype": "float32", **config}
    return {
        "module": "keras.layers",
        "class_name": kind,
        "config": config,
        "name": name,
        "inbound_nodes": node,
    }


def _argument(given: Any) -> Any:
    if isinstance(given, list):
        return [_argument(g) for g in given]
    name, call, result = (*given.split(":"), "0", "0")[:3]
    history = [name, int(call), int(result)]
    return {"class_name": "__keras_tensor__", "config": {"keras_history": history}}


def input_layer(name: str, *shape: Any, dtype: str = "float32") -> dict[str, Any]:
    return layer("InputLayer", name, batch_shape=[None, *shape], dtype=dtype)


def functional(
    layers: Sequence[Any], inputs: Sequence[str], outputs: Sequence[str], name: str = "model"
) -> dict[str, Any]:
    ends = [[[*(o.split(":")), "0", "0"][:3] for o in names] for names in (inputs, outputs)]
    ends = [[[n, int(c), int(r)] for n, c, r in rows] for rows in ends]
    config = {"name": name, "layers": list(layers)}
    config |= {"input_layers": ends[0], "output_layers": ends[1]}
    return {"module": "keras", "class_name": "Functional", "config": config}


def sequential(*layers: Any) -> dict[str, Any]:
    config = {"name": "sequential", "layers": list(layers)}
    return {"module": "keras", "class_name": "Sequential", "config": config}


def archive(config: Any, weights: Weights, compression: int = zipfile.ZIP_STORED) -> bytes:
    """A `.keras` file; weights by the path of their group, such as `layers/dense`."""
    tree = io.BytesIO()
    with h5py.File(tree, "w") as file:
        for path, arrays in weights.items():
            group = file.create_group(f"{path}/vars")
            for k, array in enumerate(arrays):
                group[str(k)] = np.asarray(array)
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", compression) as out:
        out.writestr("metadata.json", json.dumps({"keras_version": "3.0.0"}))
        out.writestr("config.json", json.dumps(config))
        out.writestr("model.weights.h5", tree.getvalue())
    return made.getvalue()


def hdf5(config: Any, weights: Mapping[str, Mapping[str, Any]], version: str = "2.9.0") -> bytes:
    """An `.h5` file; weights of each outer layer by their names."""
    made = io.BytesIO()
    with h5py.File(made, "w") as file:
        file.attrs["model_config"] = json.dumps(config)
        file.attrs["keras_version"] = version
        top = file.create_group("model_weights")
        top.attrs["layer_names"] = [n.encode() for n in weights]
        for name, arrays in weights.items():
            group = top.create_group(name)
            group.attrs["weight_names"] = [n.encode() for n in arrays]
            for key, array in arrays.items():
                group[key] = np.asarray(array)
    return made.getvalue()


def one(kind: str, *inputs: Any, weights: Weights | None = None, **config: Any) -> Any:
    """What one layer gives for these arrays, by the references of our operators."""
    names = [f"x{k}" for k in range(len(inputs))]
    entries = [
        input_layer(n, *np.shape(x)[1:], dtype=str(np.asarray(x).dtype))
        for n, x in zip(names, inputs, strict=True)
    ]
    called = layer(kind, "it", names[0] if len(names) == 1 else names, **config)
    found = {f"layers/{key(kind)}{path}": arrays for path, arrays in (weights or {}).items()}
    model = functional([*entries, called], names, ["it"])
    return results(archive(model, found), *inputs)[0]


def key(kind: str) -> str:
    import re

    name = re.sub("(.)([A-Z][a-z]+)", r"\1_\2", kind)
    return re.sub("([a-z])([A-Z])", r"\1_\2", name).lower()


def results(data: Any, *inputs: Any) -> list[Any]:
    """What a file gives for these arrays."""
    return evaluate(from_keras(data), [np.asarray(x) for x in inputs])
