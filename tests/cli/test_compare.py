"""`tilewright compare` names the first layer that goes wrong."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tilewright.graph import find_op
from tilewright.tensor import te


@pytest.mark.parametrize("against", ["reference", "onnxruntime", "opt_level=0"])
def test_a_model_that_is_right_agrees(tilewright, model: Path, against: str) -> None:
    outcome = tilewright("compare", model, "--against", against)
    assert outcome.code == 0
    assert outcome.out.startswith("agrees   y: relative error")


def test_a_lower_precision_is_told_with_its_error(tilewright, model: Path) -> None:
    outcome = tilewright("compare", model, "--precision", "int8-dynamic", "--json")
    assert outcome.code == 0
    assert outcome.json["precision"].startswith("int8-dynamic (products:")
    assert outcome.json["tolerance"] == 0.1


@pytest.mark.parametrize("against", ["reference", "onnxruntime"])
def test_the_first_wrong_layer_is_named(
    tilewright, model: Path, against: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(x: te.Tensor) -> te.Tensor:
        return te.compute(x.shape, lambda *i: te.maximum(x[i], 0.0) + 1.0, name="wrong")

    monkeypatch.setattr(find_op("relu"), "_compute", wrong)
    outcome = tilewright("compare", model, "--against", against, "--json")
    assert outcome.code == 1
    assert outcome.json["first"]["name"] == "hidden"
    assert "activation" in outcome.json["first"]["origin"]
    assert "instead of" in outcome.json["first"]["detail"]


def test_constants_that_are_flushed_are_named(tilewright, tmp_path: Path) -> None:
    weights = np.array([1e-40, 1, 2, -1e-39], np.float32)
    node = helper.make_node("Mul", ["x", "w"], ["y"])
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [4]) for n in "xy")
    constants = [numpy_helper.from_array(weights, "w")]
    graph = helper.make_graph([node], "g", [x], [y], constants)
    path = tmp_path / "tiny.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    outcome = tilewright("compare", path)
    assert outcome.code == 0
    assert "denormal, taken for zero (--denormals keep does not): w: 2 of 4 elements" in outcome.out
    found = tilewright("compare", path, "--json").json["denormal_constants"]
    assert found == [{"name": "w", "elements": 2, "size": 4}]
    assert "denormal," not in tilewright("compare", path, "--denormals", "keep").out
