"""Damaged models of every format that is read, each as arguments of `tw.compile`."""

from __future__ import annotations

import io
import json
import platform
import random
import re
import struct
import zipfile
from collections.abc import Callable
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from tests.frontends.hostile.damage import (
    Words,
    bent_text,
    bent_tree,
    damaged,
    with_other_word,
)
from tests.frontends.hostile.operators import drawn
from tilewright.frontends import operators_of

#: Where files lie that no model may read: beside the folder of the model.
OUTSIDE: Final = "outside"
#: The model, and keyword arguments that belong to it.
Given = tuple[Any, dict[str, Any]]


#: What is raised where nothing can be written that has such fields.
_UNWRITABLE: Final = (
    TypeError,
    ValueError,
    AttributeError,
    LookupError,
    ArithmeticError,
    RecursionError,
    struct.error,
)


def _seeds(framework: str) -> Any:
    return import_module(f"tests.frontends.{framework}.seeds")


@cache
def _operators(framework: str) -> list[str]:
    return [name for _, name in operators_of(framework)]


def _bent(
    fields: Any, write: Callable[[Any], bytes], rng: random.Random, words: Words | None = None
) -> bytes:
    """A file whose fields lie, as far as it can be written."""
    while True:
        try:
            return write(bent_tree(fields, rng, words))
        except _UNWRITABLE:
            continue


# ---- one file of bytes --------------------------------------------------------------------------


def tflite(folder: Path, rng: random.Random) -> Given:
    """Bytes and words of the file, or fields that lie."""
    seeds, writer = _seeds("tflite").SEEDS, import_module("tests.frontends.tflite.writer")
    fields = seeds[rng.choice(sorted(seeds))]()
    if rng.random() < 0.6:
        # The field with an operator's number, which other tables have for other things.
        words = {3: [("i", k) for k in range(len(_operators("tflite")))]}
        return _file(folder / "model.tflite", _bent(fields, writer.file_of, rng, words)), {}
    data = writer.file_of(fields)
    for _ in range(rng.choice([1, 1, 2, 4])):
        change = rng.choice([damaged, with_other_word, with_other_word])
        # What comes first says that it is a TFLite file: another is another format's to refuse.
        data = data[:8] + change(data[8:] or b"\0" * 4, rng)
    return _file(folder / "model.tflite", data), {}


def keras_hdf5(folder: Path, rng: random.Random) -> Given:
    """Bytes of the file, or a configuration or weights that lie."""
    fields = _seeds("hostile").keras_layers()
    hdf5 = import_module("tests.frontends.keras.files").hdf5
    if rng.random() < 0.3:
        return _file(folder / "model.h5", damaged(hdf5(**fields), rng)), {}
    data = _bent(fields, lambda f: hdf5(**f), rng, _layer_names())
    return _file(folder / "model.h5", data), {}


def _layer_names() -> Words:
    return {"class_name": _operators("keras")}


def onnx(folder: Path, rng: random.Random) -> Given:
    seeds = _seeds("onnx.hostile").SEEDS
    mutated = import_module("tests.frontends.onnx.hostile.damage").mutated
    model = seeds[rng.choice(sorted(seeds))]()
    return _file(folder / "model.onnx", mutated(model, rng)), {}


def onnx_case(folder: Path, rng: random.Random) -> Given:
    """One of ONNX's own cases of single operators, with attributes, constants, types that lie."""
    hostile_case = import_module("tests.frontends.onnx.hostile.cases").hostile_case
    return _file(folder / "model.onnx", hostile_case(rng)), {}


def graph_def(folder: Path, rng: random.Random) -> Given:
    """Bytes of the file, or fields that lie."""
    fields = _seeds("hostile").graph_fields()
    data = _message("GraphDef", fields, rng, bytes_of_it=0.2)
    return _file(folder / "model.pb", data), {}


def _message(kind: str, fields: Any, rng: random.Random, bytes_of_it: float) -> bytes:
    """A message of TensorFlow that is damaged: so often by its bytes."""
    encoded = import_module("tests.frontends.tensorflow.files").encoded
    if rng.random() < bytes_of_it:
        return damaged(encoded(kind, fields), rng)
    words = {"op": _operators("tensorflow")}
    return _bent(fields, lambda f: encoded(kind, f), rng, words)


# ---- several files ------------------------------------------------------------------------------


def saved_model(folder: Path, rng: random.Random) -> Given:
    """Bytes of one of its files, or fields of its graph, its signature or its tables that lie."""
    seeds = _seeds("hostile")
    files = dict(seeds.saved())
    which = rng.choice([*sorted(files), seeds.SAVED_GRAPH, seeds.SAVED_GRAPH])
    if which == seeds.SAVED_GRAPH:
        files[which] = _message("SavedModel", seeds.saved_fields(), rng, bytes_of_it=0.2)
    else:
        files[which] = damaged(files[which], rng)
    for name, data in files.items():
        path = folder / "saved" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        _file(path, data)
    return folder / "saved", {}


def keras_archive(folder: Path, rng: random.Random) -> Given:
    """Bytes of the archive or of a file in it, or a configuration or weights that lie."""
    fields = _seeds("hostile").keras_network()
    archive = import_module("tests.frontends.keras.files").archive
    if rng.random() < 0.3:
        data = _damaged_archive(archive(**fields), rng, {})
    else:
        data = _bent(fields, lambda f: archive(**f), rng, _layer_names())
    return _file(folder / "model.keras", data), {}


def pt2(folder: Path, rng: random.Random) -> Given:
    data = _pt2(rng.choice(sorted(_seeds("torch").SEEDS)))
    words = {"target": [f"torch.ops.{d}.{n}.default" for d, n in operators_of("torch")]}
    return _file(folder / "model.pt2", _damaged_archive(data, rng, words)), {}


@cache
def _pt2(name: str) -> bytes:
    # What reading an archive imports takes longer than the rest, and starts programs.
    platform.processor()
    import_module("torch._export.serde.serialize")
    return _seeds("torch").SEEDS[name]()


def _damaged_archive(data: bytes, rng: random.Random, words: Words) -> bytes:
    """Bytes of it, bytes of a file in it, or another tree in a JSON file in it."""
    if rng.random() < 0.2:
        return damaged(data, rng)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    texts = [n for n in sorted(files) if n.endswith(".json")]
    if rng.random() < 0.3:
        name = rng.choice([n for n in sorted(files) if files[n]])
        files[name] = damaged(files[name], rng)
    else:
        # The longest describes the network; the others are small.
        longest = max(texts, key=lambda n: len(files[n]))
        name = longest if rng.random() < 0.8 else rng.choice(texts)
        files[name] = _bent_json(files[name], rng, words)
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return made.getvalue()


def _bent_json(text: bytes, rng: random.Random, words: Words) -> bytes:
    return json.dumps(bent_tree(json.loads(text), rng, words)).encode()


# ---- a description and weights ------------------------------------------------------------------


#: Where the operators of a network stand in its text.
_OPERATOR: Final = {
    "mxnet": rb'"op": "(\w+)"',
    "caffe": rb'type: "(\w+)"',
    "darknet": rb"\[(\w+)\]",
}


def _described(framework: str) -> Callable[[Path, random.Random], Given]:
    """Bytes of the weights or of the text, other operators in it, or a text that lies."""

    def made(folder: Path, rng: random.Random) -> Given:
        seeds = _seeds(framework).SEEDS
        text, weights, shapes = seeds[rng.choice(sorted(seeds))]
        kind = rng.random()
        if kind < 0.1:
            text = damaged(text, rng)
        elif kind < 0.25:
            weights = damaged(weights, rng)
        elif kind < 0.5:
            text = _with_other_operator(framework, text, rng)
        elif framework == "mxnet" and kind < 0.9:
            text = _bent_json(text, rng, {"op": _operators("mxnet")})
        else:
            for _ in range(rng.choice([1, 1, 2, 3])):
                text = bent_text(text, rng)
        params = _file(folder / f"{framework}.weights", weights)
        return _file(folder / f"{framework}.txt", text), {"params": params, "shapes": shapes}

    return made


def _with_other_operator(framework: str, text: bytes, rng: random.Random) -> bytes:
    match = rng.choice(list(re.finditer(_OPERATOR[framework], text)))
    new = rng.choice(_operators(framework)).encode()
    changed = text[: match.start(1)] + new + text[match.end(1) :]
    return bent_text(changed, rng) if rng.random() < 0.5 else changed


def _file(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


# ---- one operator -------------------------------------------------------------------------------


def _operator(framework: str) -> Callable[[Path, random.Random], Given]:
    """A model of one operator, with operands and attributes by chance."""

    def made(folder: Path, rng: random.Random) -> Given:
        write = import_module("tests.frontends.hostile.operator_files").FILES[framework]
        while True:
            try:
                data, weights, shapes = write(drawn(framework, rng), rng)
            except _UNWRITABLE:
                continue
            source = _file(folder / f"{framework}.model", data)
            if weights is None:
                return source, {}
            params = _file(folder / f"{framework}.weights", weights)
            return source, {"params": params, "shapes": shapes}

    return made


# ---- files that somebody made to do harm --------------------------------------------------------


def onnx_attack(folder: Path, number: int) -> Given:
    made = _attacks(folder)
    return _file(folder / "model.onnx", made[number % len(made)].SerializeToString()), {}


@cache
def _attacks(folder: Path) -> list[Any]:
    attacks = import_module("tests.frontends.onnx.hostile.attacks")
    (folder.parent / OUTSIDE / attacks.SECRET).write_bytes(bytes(range(64)))
    return [model for _, model in attacks.attacks(folder)]


def _by_chance(
    make: Callable[[Path, random.Random], Given],
) -> Callable[[Path, int], Given]:
    return lambda folder, number: make(folder, random.Random(number))


_WITH_OPERATORS: Final = ("tensorflow", "tflite", "onnx", "mxnet", "keras", "caffe", "darknet")
#: Damaged models by format and number.
FORMATS: Final[dict[str, Callable[[Path, int], Given]]] = {
    name: _by_chance(make)
    for name, make in {
        **{f.__name__: f for f in (tflite, graph_def, saved_model, keras_archive, keras_hdf5)},
        **{name: _described(name) for name in ("mxnet", "caffe", "darknet")},
        **{f.__name__: f for f in (pt2, onnx, onnx_case)},
        **{f"{name}_operator": _operator(name) for name in _WITH_OPERATORS},
    }.items()
}
#: All that is tried: models are compiled, artifacts are loaded.
KINDS: Final = (*FORMATS, "artifact")
ATTACKS: Final = {"onnx_attack": onnx_attack}
