"""`tilewright reproduce`, and faults on the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tilewright.graph import Module, passes


def break_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    def tail_recursion(module: Module) -> Module:
        raise LookupError("no such value")

    monkeypatch.setattr(passes, "tail_recursion", tail_recursion)


def test_a_fault_is_saved_and_run_again(
    tilewright: Any, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILEWRIGHT_FAULTS_DIR", str(tmp_path))
    with monkeypatch.context() as patch:
        break_passes(patch)
        outcome = tilewright("compile", model, "-o", tmp_path / "m.twm")
        (file,) = tmp_path.glob("tilewright-fault-*.txt")
        assert outcome.code == 4 and str(file) in outcome.err
        assert "in pass tail_recursion" in outcome.err
        again = tilewright("reproduce", file)
        assert again.code == 1
        assert (
            "it fails, as it did: LookupError in tilewright/graph/rewriting/context.py" in again.out
        )
        assert "in tail_recursion" in tilewright("reproduce", file, "--traceback").out
        answer = tilewright("reproduce", file, "--json").json
        assert answer["still_fails"] and answer["same"] and answer["name"] == "tail_recursion"
    mended = tilewright("reproduce", file)
    assert mended.code == 0 and "it does not fail" in mended.out


def test_other_files_are_refused(tilewright: Any, model: Path, tmp_path: Path) -> None:
    for file in (model, tmp_path, tmp_path / "missing.txt"):
        assert tilewright("reproduce", file).code == 3
