"""Inputs that disagree on a dimension of one name: right, or refused with reasons."""

from __future__ import annotations

import os
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import tilewright as tw
from tests.frontends.onnx.models import info, make, node
from tilewright.models.apart import shapes_apart
from tilewright.runtime import TensorSpec
from tilewright.support.dtype import DType

#: y = x * w[:, None], u = 2 * w
SCALED = make(
    [
        node("Unsqueeze", ["w", "one"], ["column"]),
        node("Mul", ["x", "column"], ["y"]),
        node("Add", ["w", "w"], ["u"]),
    ],
    [info("x", shape=["B", "W"]), info("w", shape=["B"])],
    ["y", "u"],
    {"one": np.array([1])},
)
#: The inputs never meet, although their file says that they are equally long.
SEPARATE = make(
    [node("Relu", ["x"], ["y"]), node("Neg", ["w"], ["z"])],
    [info("x", shape=["N", 4]), info("w", shape=["N"])],
    ["y", "z"],
)


def given(rows: int, width: int, weights: int) -> dict[str, Any]:
    x = np.arange(rows * width, dtype=np.float32).reshape(rows, width)
    return {"x": x, "w": np.arange(1, weights + 1, dtype=np.float32)}


@pytest.fixture(scope="module")
def model() -> Any:
    return tw.compile(SCALED)


@pytest.mark.filterwarnings("ignore:input w must be")
@pytest.mark.parametrize("sizes", [(3, 5, 3), (1, 5, 4), (1, 7, 9), (4, 5, 1), (2, 3, 2)])
def test_what_broadcasts_is_right(model: Any, sizes: tuple[int, int, int]) -> None:
    inputs = given(*sizes)
    y, u = model.run(inputs)
    np.testing.assert_array_equal(y, inputs["x"] * inputs["w"][:, None])
    np.testing.assert_array_equal(u, 2 * inputs["w"])


def test_it_is_told_once_for_all_sizes() -> None:
    model = tw.compile(SCALED)
    with pytest.warns(UserWarning, match=r"compiled anew for x: \[1, W\]; w: \[B\]"):
        model.run(given(1, 5, 4))
    model.run(given(1, 8, 6))
    with pytest.warns(UserWarning, match=r"compiled anew for x: \[B, W\]; w: \[1\]"):
        model.run(given(5, 8, 1))


def test_what_never_meets_may_differ() -> None:
    model = tw.compile(SEPARATE)
    for sizes in ((2, 4, 2), (2, 4, 3), (7, 4, 5), (0, 4, 2)):
        inputs = given(*sizes)
        with pytest.warns(UserWarning) if sizes == (2, 4, 3) else nullcontext():
            y, z = model.run(inputs)
        np.testing.assert_array_equal(y, inputs["x"])
        np.testing.assert_array_equal(z, -inputs["w"])


def test_mistakes_are_refused_as_before(model: Any) -> None:
    for _ in range(2):
        with pytest.raises(tw.UserError) as caught:
            model.run(given(3, 5, 4))
        text = str(caught.value)
        assert "input w must be float32[B]: got the shape [4] with B = 3, W = 5" in text
        assert "with different names for that dimension, " in text
        assert "(Mul)" in text
    with pytest.raises(tw.UserError, match=r"w must be float32\[B\]: got 2 dimensions"):
        model.run({**given(3, 5, 3), "w": np.zeros((3, 1), np.float32)})


@pytest.mark.filterwarnings("ignore:input w must be")
def test_all_ways_to_run(model: Any) -> None:
    inputs = given(1, 5, 4)
    bound = model.bind(inputs)
    inputs["x"][:] = 3
    np.testing.assert_array_equal(bound()[0], 3 * np.ones((4, 5)) * inputs["w"][:, None])
    assert model.profile(inputs, runs=2).runs == 2
    out = np.empty((4, 5), np.float32)
    assert model.run(inputs, out=[out])[0] is out
    model.set_threads(1)
    model.run(inputs)


@pytest.mark.filterwarnings("ignore:input w must be")
def test_files_are_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    onnx.save(SCALED, "model.onnx")
    model = tw.compile("model.onnx")
    (tmp_path / "other").mkdir()
    os.chdir(tmp_path / "other")
    assert model.run(given(1, 5, 4))[0].shape == (4, 5)
    onnx.save(SEPARATE, tmp_path / "model.onnx")
    with pytest.raises(tw.UserError, match="changed or removed after the model was compiled"):
        model.run(given(4, 5, 1))


def test_loaded_models_refuse(model: Any, tmp_path: Path) -> None:
    model.save(tmp_path / "model.twm")
    loaded = tw.load(tmp_path / "model.twm")
    with pytest.raises(tw.UserError, match=r"input w must be float32\[B\]: got the shape \[4\]"):
        loaded.run(given(1, 5, 4))


def test_names_for_each_extent() -> None:
    def spec(name: str, *dims: int | str) -> TensorSpec:
        return TensorSpec(name, DType.of("float32"), dims)

    specs = [spec("a", "n", "n_2"), spec("b", 3, "n"), spec("c", "n", "n")]
    extents = {"a": (5, 2), "b": (3, 1), "c": (6, 5)}
    assert shapes_apart(specs, extents) == {"a": ["n", "n_2"], "b": [3, 1], "c": ["n_3", "n"]}
