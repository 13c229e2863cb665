"""`tilewright run`: arrays in, arrays out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

from tests.frontends.onnx.models import info, make, node


def test_outputs_are_those_of_the_model(tilewright, model: Path, tmp_path: Path) -> None:
    x = np.random.default_rng(1).standard_normal((3, 8)).astype(np.float32)
    np.savez(tmp_path / "in.npz", x=x)
    outcome = tilewright(
        "run", model, "--inputs", tmp_path / "in.npz", "--outputs", tmp_path / "out.npz"
    )
    assert outcome.code == 0
    assert outcome.out.startswith("y: float32[3, 4]  min")
    w, b, v = (numpy_helper.to_array(t) for t in onnx.load(str(model)).graph.initializer)
    expected = np.maximum(x @ w + b, 0) @ v
    np.testing.assert_allclose(np.load(tmp_path / "out.npz")["y"], expected, rtol=1e-5, atol=1e-5)


def test_inputs_can_be_made_up(tilewright, model: Path) -> None:
    outcome = tilewright("run", model, "--fill", "ones", "--dim", "n=2", "--print-top", 2, "--json")
    described = outcome.json["outputs"]["y"]
    assert described["shape"] == [2, 4]
    # Rows of ones give equal rows, each with its two largest entries.
    first, second = described["top"]
    assert first == second and len(first) == 2


def test_random_inputs_depend_on_the_seed_alone(tilewright, model: Path) -> None:
    runs = [tilewright("run", model, "--print-top", 1, "--seed", seed).out for seed in (1, 1, 2)]
    assert runs[0] == runs[1] != runs[2]


def test_runs_are_repeated(tilewright, model: Path) -> None:
    assert "5 runs," in tilewright("run", model, "--repeat", 5).out


def test_sequences_come_out_item_by_item(tilewright, tmp_path: Path) -> None:
    made = make([node("SplitToSequence", ["x"], ["q"], axis=0)], [info("x", shape=[2, 3])], ["q"])
    onnx.save(made, str(tmp_path / "m.onnx"))
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.savez(tmp_path / "in.npz", x=x)
    outcome = tilewright(
        *("run", tmp_path / "m.onnx", "--inputs", tmp_path / "in.npz"),
        *("--outputs", tmp_path / "out.npz"),
    )
    assert outcome.code == 0
    assert "q[1]: float32[1, 3]  min 3" in outcome.out
    np.testing.assert_array_equal(np.load(tmp_path / "out.npz")["q[1]"], x[1:])
    against = tilewright("compare", tmp_path / "m.onnx", "--against", "reference")
    assert against.code == 0 and "agrees   q[0]" in against.out
