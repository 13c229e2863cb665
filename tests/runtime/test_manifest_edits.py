"""Artifacts whose manifest was edited, with right checksums: refused, or none the worse for it.

Every field of several manifests is deleted, doubled, swapped, and given other types, numbers and
texts. A seeded sample of these edits is tried here; `make fuzz` tries all.
"""

from __future__ import annotations

import os
import random as chance
import re
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.frontends.onnx.models import info, make, node
from tests.manifest_edits import edits, manifest_of
from tests.networks import mlp, positive, random
from tilewright.graph import ANY, Builder, SequenceType, TensorType

ROOT = Path(__file__).parents[2]
_SAMPLE = 60
_ALL = bool(os.environ.get("TILEWRIGHT_FUZZ"))


def _listed() -> Any:
    b = Builder()
    items = b.input("items", SequenceType(TensorType("f32", (ANY, 2))))
    b.output(b.sequence_insert(items, b.constant(random(3, 2))))
    return tw.compile(b.build())


def _several() -> list[Any]:
    return [tw.compile(mlp(), target=t) for t in ("llvm", "llvm -mtriple=aarch64-linux-gnu")]


def _hosted() -> Any:
    nodes = [
        node("StringConcat", ["a", "b"], ["s"]),
        node("Add", ["x", "w"], ["t"]),
        node("Relu", ["t"], ["y"]),
    ]
    inputs = [info("a", "string", [2]), info("b", "string", [2]), info("x", shape=[2, 3])]
    return tw.compile(make(nodes, inputs, ["s", "y"], {"w": random(2, 3)}, opset=20))


def _cases() -> Any:
    nodes = [node("ReduceSum", ["x", "axes"])]
    model = tw.compile(make(nodes, [info("x", shape=[3, 4]), info("axes", "int64", [1])], ["y"]))
    for axis in (0, 1):
        model.run([random(3, 4), np.array([axis])])
    return model


_STRINGS = np.array(["one", "two"], object)
#: How models are made, and what they are run on.
MODELS: dict[str, tuple[Callable[[], Any], list[Any]]] = {
    "static": (lambda: tw.compile(mlp(5)), [random(5, 24)]),
    "symbolic": (lambda: tw.compile(mlp()), [random(3, 24)]),
    "late": (lambda: tw.compile(positive()), [random(9)]),
    "listed": (_listed, [[random(1, 2), random(1, 2)]]),
    "several": (_several, [random(3, 24)]),
    "hosted": (_hosted, [_STRINGS, _STRINGS, random(2, 3)]),
    "cases": (_cases, [random(3, 4), np.array([1])]),
    "launched": (lambda: tw.compile(mlp(5), "simt"), [random(5, 24)]),
}
#: Data that no code vouches for: another graph, constant or key is another model.
_FREE = {
    "hosted": re.compile(r"'(graph|constants|native)'"),
    "cases": re.compile(r"'(values|shapes|names)'"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("edits")


@pytest.mark.parametrize("name", MODELS)
def test_edited_manifests_are_refused_or_right(name: str, folder: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tw.save(MODELS[name][0](), folder / f"{name}.twm")
    made = edits(manifest_of(folder / f"{name}.twm"))
    numbers = list(range(len(made)))
    if not _ALL:
        numbers = sorted(chance.Random(name).sample(numbers, min(_SAMPLE, len(numbers))))
    bad = [
        f"{made[k][0]} = {made[k][1]!r}: {told}"
        for k, told in _outcomes(folder, name, numbers)
        if told not in ("right", "refused") and not _is_free(name, made[k][0], told)
    ]
    assert not bad, "\n".join([f"{len(bad)} edits", *bad[:20]])


def _is_free(name: str, path: tuple[Any, ...], told: str) -> bool:
    return told == "other results" and name in _FREE and bool(_FREE[name].search(str(path)))


def _outcomes(folder: Path, name: str, numbers: list[int]) -> list[tuple[int, str]]:
    """What each edit ends in; a process that dies is started again after the edit that did it."""
    found: list[tuple[int, str]] = []
    while len(found) < len(numbers):
        rest = numbers[len(found) :][:4000]
        words = [sys.executable, "-m", "tests.manifest_edits", str(folder), name, *map(str, rest)]
        done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
        told = re.findall(r"^end (\d+) (.*)$", done.stdout, re.MULTILINE)
        found += [(int(number), text) for number, text in told]
        if done.returncode:
            tried = re.findall(r"^try (\d+)$", done.stdout, re.MULTILINE)
            assert len(tried) > len(told), done.stderr[-2000:]
            found.append((int(tried[-1]), f"the process ended with {done.returncode}"))
    return found
