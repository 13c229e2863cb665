"""`tilewright quantize` writes models that other commands and tools read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "calibration.npz"
    np.savez(path, x=np.random.default_rng(1).standard_normal((32, 8)).astype(np.float32))
    return path


def test_a_model_in_bytes(tilewright, model: Path, data: Path, tmp_path: Path) -> None:
    made, page = tmp_path / "small.int8.onnx", tmp_path / "quant.html"
    words = ["--data", data, "--budget", "20%", "-o", made, "--report", page]
    outcome = tilewright("quantize", model, *words, "--json")
    assert outcome.code == 0 and "<svg" in page.read_text(encoding="utf-8")
    told = outcome.json
    assert told["error"]["relative"] <= 0.2 and told["budget"] == 0.2
    assert {row["precision"] for row in told["layers"]} <= {"int8", "float32"}
    outcome = tilewright("compare", made, "--against", "onnxruntime", "--inputs", data)
    assert outcome.code == 0
    words = ["--against", model, "--inputs", data, "--layers", "--tolerance", "0.2"]
    outcome = tilewright("compare", made, *words, "--json")
    assert outcome.code == 0
    assert outcome.json["outputs"][0]["error"] <= 0.2 and outcome.json["layers"]


def test_weights_alone(tilewright, model: Path, tmp_path: Path) -> None:
    made = tmp_path / "small.int4.onnx"
    outcome = tilewright("quantize", model, "--weights", "int4", "--group", "16", "-o", made)
    assert outcome.code == 0 and "int4" in outcome.out
    assert tilewright("compare", made, "--against", "onnxruntime").code == 0


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ([], 3, "cannot quantize without calibration data"),
        (["--data", "nowhere.npz"], 3, "there is no file nowhere.npz"),
        (["--data", "random", "--budget", "7"], 2, "'7' is no error such as 0.01 or 1%"),
        (["--data", "random", "--method", "best"], 2, "invalid choice: 'best'"),
    ],
)
def test_what_is_refused(
    tilewright, model: Path, words: list[str], code: int, message: str
) -> None:
    outcome = tilewright("quantize", model, *words)
    assert outcome.code == code and message in outcome.err
