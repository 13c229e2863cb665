"""Small models as files, and the command line as a function."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tilewright.cli import main


class Outcome(NamedTuple):
    """How a command ended and what it printed."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Tilewright = Callable[..., Outcome]


@pytest.fixture
def tilewright(capsys: pytest.CaptureFixture[str]) -> Tilewright:
    """The command line in this process."""

    def run(*words: object) -> Outcome:
        code = main([str(w) for w in words])
        printed = capsys.readouterr()
        return Outcome(code, printed.out, printed.err)

    return run


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """y = relu(x @ w + b) @ v for x: f32[n, 8], with nodes that have names."""
    rng = np.random.default_rng(0)
    arrays = {"w": (8, 16), "b": (16,), "v": (16, 4)}
    weights = [
        numpy_helper.from_array(rng.standard_normal(s).astype(np.float32), n)
        for n, s in arrays.items()
    ]
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["xw"], name="first"),
        helper.make_node("Add", ["xw", "b"], ["biased"], name="bias"),
        helper.make_node("Relu", ["biased"], ["hidden"], name="activation"),
        helper.make_node("MatMul", ["hidden", "v"], ["y"], name="second"),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 8])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 4])
    graph = helper.make_graph(nodes, "small", [x], [y], weights)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    path = tmp_path_factory.mktemp("models") / "small.onnx"
    onnx.save(made, str(path))
    return path


@pytest.fixture(scope="session")
def artifact(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, compiled: for tests of what comes after that."""
    path = tmp_path_factory.mktemp("artifact") / "small.twm"
    assert main(["compile", str(model), "-o", str(path)]) == 0
    return path
