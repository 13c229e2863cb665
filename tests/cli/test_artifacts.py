"""Commands on artifacts: what `compile` writes, others read."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest


def test_an_artifact_gives_the_model_s_answers(
    tilewright, model: Path, artifact: Path, tmp_path: Path
) -> None:
    np.savez(tmp_path / "in.npz", x=np.linspace(-1, 1, 24, dtype=np.float32).reshape(3, 8))
    answers = []
    for source in (model, artifact):
        out = tmp_path / "out.npz"
        assert (
            tilewright("run", source, "--inputs", tmp_path / "in.npz", "--outputs", out).code == 0
        )
        answers.append(np.load(out)["y"])
    assert (answers[0] == answers[1]).all()


def test_compile_says_what_it_made(tilewright, model: Path, tmp_path: Path) -> None:
    outcome = tilewright("compile", model, "-o", tmp_path / "m.twm", "--json")
    assert outcome.json["bytes"] == (tmp_path / "m.twm").stat().st_size
    assert outcome.json["inputs"] == ["x: float32[n, 8]"]


def test_one_file_may_serve_several_machines(tilewright, model: Path, tmp_path: Path) -> None:
    targets = [
        "--target",
        "llvm",
        "--target",
        "llvm -mcpu=znver4 -mtriple=x86_64-unknown-linux-gnu",
    ]
    path = tmp_path / "both.twm"
    assert tilewright("compile", model, "-o", path, *targets).code == 0
    builds = tilewright("inspect", path, "--json").json["builds"]
    assert len(builds) == 2
    assert tilewright("run", path).code == 0


def test_inspect_reads_artifacts(tilewright, artifact: Path) -> None:
    found = tilewright("inspect", artifact, "--json").json
    assert found["operators"] == {"matmul": 2, "add": 1, "relu": 1}
    assert found["memory"]["values"] >= 1
    assert "fused" in tilewright("inspect", artifact, "--graph").out


@pytest.mark.parametrize(
    ("option", "shown"),
    [
        ("--loops", "reduce("),
        ("--schedule", "vectorized("),
        ("--llvm", "define i32"),
        ("--asm", ":"),
    ],
)
def test_inspect_shows_levels_of_kernels(
    tilewright, artifact: Path, option: str, shown: str
) -> None:
    outcome = tilewright("inspect", artifact, option, "matmul_add_relu")
    assert outcome.code == 0
    assert outcome.out.startswith("# matmul_add_relu") and shown in outcome.out


def test_a_report_of_an_artifact_knows_the_nodes(
    tilewright, artifact: Path, tmp_path: Path
) -> None:
    outcome = tilewright("report", artifact, "-o", tmp_path / "r.html", "--json")
    assert outcome.json["kernels"] == 2


def test_passes_can_be_watched(tilewright, model: Path, tmp_path: Path) -> None:
    out = tmp_path / "m.twm"
    outcome = tilewright(
        "compile", model, "-o", out, "--print-ir-after", "fuse", "--dump", tmp_path / "ir"
    )
    assert "# after fuse" in outcome.out
    names = sorted(p.name for p in (tmp_path / "ir").iterdir())
    assert names[0] == "00_given.txt" and any(n.endswith("_fuse.txt") for n in names)


def test_options_of_compiling_have_no_effect_on_artifacts(tilewright, artifact: Path) -> None:
    outcome = tilewright("run", artifact, "--opt-level", 3)
    assert outcome.code == 3
    assert "--opt-level has no effect" in outcome.err


def test_profile_names_kernels_and_nodes(tilewright, artifact: Path, tmp_path: Path) -> None:
    words = ["--runs", 2, "--threads", 1, "--dim", "n=4"]
    found = tilewright("profile", artifact, *words, "--json").json["kernels"]
    assert sorted(k["calls"] for k in found) == [1, 1]
    fused = next(k for k in found if k["name"].startswith("matmul_add_relu"))
    # Products, additions of the bias and of what the maximum compares: 4 rows of 16.
    assert fused["flops"] >= 4 * 16 * (2 * 8 + 1)
    assert "first" in fused["nodes"][0] and fused["floor"] > 0
    table = tilewright("profile", artifact, *words, "--trace", tmp_path / "trace.json").out
    assert "their floors add up to" in table
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert len(events) == 4


def test_libraries_are_exported(tilewright, artifact: Path, tmp_path: Path) -> None:
    for kind, written in (("o", ["m.h", "m.o"]), ("a", ["m.a", "m.h"]), ("c-header", ["m.h"])):
        folder = tmp_path / kind
        folder.mkdir()
        end = "h" if kind == "c-header" else kind
        outcome = tilewright("export", artifact, "--format", kind, "-o", folder / f"m.{end}")
        assert outcome.code == 0
        assert sorted(p.name for p in folder.iterdir()) == written
        assert "m_run(" in (folder / "m.h").read_text()
