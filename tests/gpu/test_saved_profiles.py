"""Profiles of saved models for GPUs, taken where there is no compiler."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.manifest_edits import manifest_of, rewrite
from tilewright.graph import Builder
from tilewright.support.errors import UserError

ROOT = Path(__file__).parents[2]
WITHOUT_LLVM = """
import sys
sys.modules["llvmlite"] = None
import numpy, tilewright
model = tilewright.load(sys.argv[1])
profile = model.profile([numpy.ones((3, 8), numpy.float32)], runs=2)
for row in profile.rows:
    print(row.name, row.calls, row.flops, row.bytes)
model.save(sys.argv[2])
"""


def compiled() -> Any:
    b = Builder()
    x = b.input("x", "f32", ("n", 8))
    b.output(b.softmax(b.matmul(x, np.ones((8, 8), np.float32))))
    return tw.compile(b.build(), "simt")


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("saved") / "m.twm"
    compiled().save(path)
    return path


def test_profiles_need_no_compiler(saved: Path, tmp_path: Path) -> None:
    again = tmp_path / "again.twm"
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_LLVM, str(saved), str(again)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    rows = compiled().profile([np.ones((3, 8), np.float32)], runs=2).rows
    told = [f"{r.name} {r.calls} {r.flops} {r.bytes}" for r in rows]
    assert sorted(done.stdout.splitlines()) == sorted(told)
    first, second = (manifest_of(p)["builds"][0]["model"]["recorder"] for p in (saved, again))
    assert first == second


def test_models_of_processors_do_not_carry_it(tmp_path: Path) -> None:
    b = Builder()
    b.output(b.relu(b.input("x", "f32", (4,))))
    tw.compile(b.build()).save(tmp_path / "m.twm")
    assert "recorder" not in manifest_of(tmp_path / "m.twm")["builds"][0]["model"]


@pytest.mark.parametrize("field", ["words", "object"])
def test_what_records_belongs_to_the_program(saved: Path, tmp_path: Path, field: str) -> None:
    """Events of another size would be written past their memory."""
    manifest = manifest_of(saved)
    model = manifest["builds"][0]["model"]
    model["recorder"][field] = 5 if field == "words" else model["objects"][0]
    rewrite(saved, tmp_path / "m.twm", manifest)
    with pytest.raises(UserError, match=r"what records .* was made for another program"):
        tw.load(tmp_path / "m.twm")
