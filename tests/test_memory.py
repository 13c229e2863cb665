"""What models take: parameters kept once and packed, arenas as large as what is live."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import tilewright as tw
from tilewright.graph import Builder, Module
from tilewright.lower import arena_plan
from tilewright.models.artifact import load
from tilewright.models.native import NativeModel
from tilewright.runtime import in_memory
from tilewright.runtime.artifact.container import PARAMS, Container

SIDE = 128


def matrix(seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal((SIDE, SIDE)).astype(np.float32) / 11


def network(*weights: Any) -> Module:
    """Products one after the other, with a function between them."""
    b = Builder()
    x = b.input("x", "f32", (16, SIDE))
    for weight in weights:
        x = b.tanh(b.matmul(x, weight))
    b.output(x)
    return b.build()


def residual_network(blocks: int) -> Module:
    b = Builder()
    x = b.input("x", "f32", (1, 32, 28, 28))
    for k in range(blocks):
        weight = np.random.default_rng(k).standard_normal((32, 32, 3, 3)).astype(np.float32)
        y = b.relu(b.conv(x, weight, pads=[1] * 4))
        x = b.relu(b.conv(y, weight + 1, pads=[1] * 4) + x)
    b.output(x)
    return b.build()


def compiled(module: Module) -> NativeModel:
    made = tw.compile(module)
    assert isinstance(made, NativeModel)
    return made


def test_packed_weights_take_the_place_of_the_original_ones(tmp_path: Path) -> None:
    weights = [matrix(k) for k in range(4)]
    model = compiled(network(*weights))
    assert model.memory["constants"] == sum(w.nbytes for w in weights)
    model.save(tmp_path / "m.twm")
    file = Container(tmp_path / "m.twm")
    assert len(file.view(PARAMS)) == sum(w.nbytes for w in weights)


def test_equal_weights_are_saved_once(tmp_path: Path) -> None:
    model = compiled(network(matrix(), matrix(), matrix(1), matrix()))
    model.save(tmp_path / "m.twm")
    assert len(Container(tmp_path / "m.twm").view(PARAMS)) == 2 * matrix().nbytes


def test_loaded_parameters_stay_in_the_file(tmp_path: Path) -> None:
    compiled(network(matrix())).save(tmp_path / "m.twm")
    contents: Any = load(tmp_path / "m.twm").as_build().contents
    # What lies in a file is copied by this; processes share what is not.
    assert all(in_memory(array) is not array for array in contents.constants)


def test_arenas_take_about_what_is_live() -> None:
    model = compiled(residual_network(3))
    plan = arena_plan(model.ir("main"))
    assert plan.live <= plan.size <= 1.2 * plan.live
    assert model.memory["arena"] >= plan.size
