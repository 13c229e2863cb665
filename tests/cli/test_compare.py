"""`tilewright compare` names the first layer that goes wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

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
