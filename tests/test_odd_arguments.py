"""Arguments that are nearly right: each is refused by name, and for what is wrong with it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import numpy as np
import onnx
import pytest

import tilewright as tw
from tests.frontends.onnx.models import info, make, node
from tests.networks import mlp, random
from tilewright.cli import main
from tilewright.support.errors import UserError

RELU = make([node("Relu", ["x"])], [info("x", shape=["n", 8])], ["y"])


@pytest.fixture(scope="module")
def model() -> Any:
    return tw.compile(RELU)


def test_a_home_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", "~nouser/x")
    with pytest.raises(UserError, match="TILEWRIGHT_CACHE_DIR has no use for '~nouser/x'"):
        tw.compile(RELU)


def test_levels_and_targets_of_other_types() -> None:
    with pytest.raises(UserError, match="there is no opt_level '3'"):
        tw.compile(RELU, opt_level="3")  # type: ignore[arg-type]
    with pytest.raises(UserError, match="None is no target"):
        tw.compile(RELU, target=None)  # type: ignore[arg-type]


@pytest.mark.parametrize("source", [RELU, mlp()], ids=["onnx", "graph"])
@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ({"x": [1.5, 8]}, r"shape \[1.5, 8\]: 1.5 is no size"),
        ({"x": 5}, "the shape 5: it is no list"),
        ({"x": "ab"}, "the shape 'ab': it is no list"),
        ({"x": [True, 8]}, "True is no size"),
        ([("x", [1, 8])], "shapes must be a dict"),
    ],
)
def test_shapes_that_are_none(source: Any, shapes: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        tw.compile(source, shapes=shapes)


def test_shapes_of_numpy_numbers() -> None:
    shapes: dict[str, Any] = {"x": np.array([2, 8])}
    assert str(tw.compile(RELU, shapes=shapes).inputs[0]) == "x: float32[2, 8]"


def test_paths(model: Any, tmp_path: Path) -> None:
    for use in (tw.load, model.save):
        with pytest.raises(UserError, match=r"a\\0b"):
            use("a\0b")
        with pytest.raises(UserError, match="a path must be text, bytes or a Path: got int"):
            use(5)  # type: ignore[arg-type]
    model.save(os.fsencode(tmp_path / "m.twm"))
    tw.load(os.fsencode(tmp_path / "m.twm")).run([random(1, 8)])
    # Nothing that is written meanwhile has a longer name.
    long = tmp_path / f"{'m' * 251}.twm"
    model.save(long)
    tw.load(long).run([random(1, 8)])


def test_a_library_and_its_header_are_two_files(model: Any, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="the library and its header have the same name"):
        model.export_library(tmp_path / "m.o", tmp_path / "." / "m.o")


def test_indices_are_told_as_they_were_given() -> None:
    inputs = [info("x", shape=[5]), info("i", "int64", [2])]
    model = tw.compile(make([node("Gather", ["x", "i"])], inputs, ["y"]))
    for index in (-6, 5, -100):
        with pytest.raises(UserError, match=f"index {index} is out of bounds.*extent is 5"):
            model.run([random(5), np.array([0, index])])


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_headers_with_comments_in_names(tmp_path: Path) -> None:
    name = "a/*b*/c/\u202e\u2066\x07"
    proto = make([node("Relu", [name])], [info(name, shape=["/*n\u202e", 8])], ["y"])
    tw.compile(proto).export_library(tmp_path / "m.o", tmp_path / "m.h", name="m")
    words = ["cc", "-fsyntax-only", "-Werror", "-Wall", "-x", "c", str(tmp_path / "m.h")]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    # Such characters make editors show other code than compilers read.
    assert "\u202e" not in (tmp_path / "m.h").read_text(encoding="utf-8")


# ---- the command line ---------------------------------------------------------------------------


def tilewright(*words: Any, **environment: str) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "tilewright", *words]
    return subprocess.run(command, capture_output=True, env={**os.environ, **environment})


def test_output_in_an_encoding_without_our_characters(model: Any, tmp_path: Path) -> None:
    model.save(tmp_path / "m.twm")
    for words in (["inspect", str(tmp_path / "m.twm")], ["doctor"], ["run", "missing–.twm"]):
        done = tilewright(*words, PYTHONIOENCODING="ascii")
        assert done.returncode in (0, 1, 3), done.stderr
        assert b"internal error" not in done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="names of files are text elsewhere")
def test_names_that_are_no_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    name = os.fsdecode(b"m\xff.onnx")
    onnx.save(RELU, "m.onnx")
    os.rename("m.onnx", name)
    assert main(["compile", name]) == 0
    artifact = os.fsdecode(b"m\xff.twm")
    assert main(["run", artifact, "--fill", "ones"]) == 0
    assert main(["inspect", artifact]) == 0
    assert main(["report", artifact]) == 0
    assert tilewright("run", os.fsencode("no" + artifact)).returncode == 3


def test_outputs_keep_their_names() -> None:
    """Also where what the file calls so is left out, as a product by one is."""
    nodes = [node("Reciprocal", ["x"], ["r"]), node("Mul", ["r", "one"], ["conf"])]
    one = {"one": np.float32(1)}
    model = tw.compile(make(nodes, [info("x", shape=["n", 8])], ["conf"], one))
    assert [s.name for s in model.outputs] == ["conf"]
    model.set_input("x", np.ones((2, 8), np.float32))
    model.run()
    assert model.get_output("conf").shape == (2, 8)


#: As callers without a type checker see them.
_load, _save, _compile = cast("Any", (tw.load, tw.save, tw.compile))
#: Each is a call, and what it is told.
_ODD_CALLS: list[tuple[str, Any, str]] = [
    ("out", lambda m, x, _: m.run([x], out=3), "outputs cannot be written to int"),
    ("out by number", lambda m, x, _: m.run([x], out={1: x}), "the model has no output 1"),
    ("runs", lambda m, x, _: m.profile([x], runs="3"), "cannot profile '3' runs"),
    ("warmup", lambda m, x, _: m.profile([x], warmup=None), "cannot warm up by None runs"),
    ("seconds", lambda m, x, _: m.benchmark([x], seconds="1"), "got '1' seconds"),
    ("affinity", lambda m, x, _: m.set_threads(1, 0), "cannot tie threads to processors 0"),
    ("affinities", lambda m, x, _: m.set_threads(1, ["0"]), r"processors \['0'\]"),
    ("input", lambda m, x, _: m.set_input(0, x), "the model has no input 0"),
    ("kernel", lambda m, x, _: m.ir({}), "no kernel {}"),
    ("header", lambda m, x, p: m.export_library(p / "a.o", 3), "a path must be text"),
    ("prefix", lambda m, x, p: m.export_library(p / "a.o", name=3), "3 cannot begin the names"),
    ("trusted", lambda m, x, p: _load(_saved(m, p), trusted=3), "a path must be text"),
    ("models", lambda m, x, p: _save([m, 3], p / "a.twm"), "cannot save int"),
    ("denormals", lambda m, x, _: _compile(RELU, denormals=[]), "cannot be treated by"),
]


@pytest.mark.parametrize("call", _ODD_CALLS, ids=[name for name, *_ in _ODD_CALLS])
def test_odd_calls(model: Any, call: Any, tmp_path: Path) -> None:
    _, act, message = call
    with pytest.raises(UserError, match=message):
        act(model, np.ones((2, 8), np.float32), tmp_path)


def _saved(model: Any, folder: Path) -> Path:
    model.save(folder / "model.twm")
    return folder / "model.twm"
