"""Damaged models of every format that is read, each as arguments of `tw.compile`."""

from __future__ import annotations

import copy
import io
import json
import platform
import random
import zipfile
from collections.abc import Callable
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from tests.frontends.hostile.damage import (
    bend_tree_a_little,
    bent_text,
    damaged,
    with_other_word,
)

#: Where files lie that no model may read: beside the folder of the model.
OUTSIDE: Final = "outside"
#: The model, and keyword arguments that belong to it.
Given = tuple[Any, dict[str, Any]]


def _seeds(framework: str) -> Any:
    return import_module(f"tests.frontends.{framework}.seeds")


# ---- one file of bytes --------------------------------------------------------------------------


def tflite(folder: Path, rng: random.Random) -> Given:
    seeds = _seeds("tflite").SEEDS
    data = seeds[rng.choice(sorted(seeds))]()
    for _ in range(rng.choice([1, 1, 2, 4])):
        change = rng.choice([damaged, with_other_word, with_other_word])
        # What comes first says that it is a TFLite file: another is another format's to refuse.
        data = data[:8] + change(data[8:] or b"\0" * 4, rng)
    return _file(folder / "model.tflite", data), {}


def keras_hdf5(folder: Path, rng: random.Random) -> Given:
    return _file(folder / "model.h5", damaged(_seeds("hostile").keras_hdf5(), rng)), {}


def onnx(folder: Path, rng: random.Random) -> Given:
    seeds = _seeds("onnx.hostile").SEEDS
    mutated = import_module("tests.frontends.onnx.hostile.damage").mutated
    model = seeds[rng.choice(sorted(seeds))]()
    return _file(folder / "model.onnx", mutated(model, rng)), {}


def graph_def(folder: Path, rng: random.Random) -> Given:
    """Bytes of the file, or fields that lie."""
    seeds = _seeds("hostile")
    data = damaged(seeds.graph_def(), rng) if rng.random() < 0.3 else _bent_graph(rng)
    return _file(folder / "model.pb", data), {}


def _bent_graph(rng: random.Random) -> bytes:
    encoded = import_module("tests.frontends.tensorflow.files").encoded
    while True:
        fields = copy.deepcopy(_seeds("hostile").graph_fields())
        bend_tree_a_little(fields, rng)
        try:
            return encoded("GraphDef", fields)
        except (TypeError, ValueError, AttributeError, KeyError, RecursionError):
            continue  # No message has such fields.


# ---- several files ------------------------------------------------------------------------------


def saved_model(folder: Path, rng: random.Random) -> Given:
    files = dict(_seeds("hostile").saved())
    which = rng.choice(sorted(files))
    for name, data in files.items():
        path = folder / "saved" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        _file(path, damaged(data, rng) if name == which else data)
    return folder / "saved", {}


def keras_archive(folder: Path, rng: random.Random) -> Given:
    """Bytes of the archive, bytes of a file inside it, or a configuration that lies."""
    data = _seeds("hostile").keras_archive()
    return _file(folder / "model.keras", _damaged_archive(data, rng)), {}


def pt2(folder: Path, rng: random.Random) -> Given:
    data = _pt2(rng.choice(sorted(_seeds("torch").SEEDS)))
    return _file(folder / "model.pt2", _damaged_archive(data, rng)), {}


@cache
def _pt2(name: str) -> bytes:
    # What reading an archive imports takes longer than the rest, and starts programs.
    platform.processor()
    import_module("torch._export.serde.serialize")
    return _seeds("torch").SEEDS[name]()


def _damaged_archive(data: bytes, rng: random.Random) -> bytes:
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
        files[name] = _bent_json(files[name], rng)
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return made.getvalue()


def _bent_json(text: bytes, rng: random.Random) -> bytes:
    tree = json.loads(text)
    bend_tree_a_little(tree, rng)
    return json.dumps(tree).encode()


# ---- a description and weights ------------------------------------------------------------------


def _described(framework: str) -> Callable[[Path, random.Random], Given]:
    def made(folder: Path, rng: random.Random) -> Given:
        seeds = _seeds(framework).SEEDS
        text, weights, shapes = seeds[rng.choice(sorted(seeds))]
        kind = rng.random()
        if kind < 0.15:
            text = damaged(text, rng)
        elif kind < 0.35:
            weights = damaged(weights, rng)
        else:
            for _ in range(rng.choice([1, 1, 2, 3])):
                text = bent_text(text, rng)
        params = _file(folder / f"{framework}.weights", weights)
        return _file(folder / f"{framework}.txt", text), {"params": params, "shapes": shapes}

    return made


def _file(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


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


#: Damaged models by format and number.
FORMATS: Final[dict[str, Callable[[Path, int], Given]]] = {
    name: _by_chance(make)
    for name, make in {
        **{f.__name__: f for f in (tflite, graph_def, saved_model, keras_archive, keras_hdf5)},
        **{name: _described(name) for name in ("mxnet", "caffe", "darknet")},
        **{f.__name__: f for f in (pt2, onnx)},
    }.items()
}
ATTACKS: Final = {"onnx_attack": onnx_attack}
