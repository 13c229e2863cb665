"""Damaged and malicious files through the whole compiler: each runs, or is refused, soon.

This is a sample of each format; `make fuzz-files` takes a thousand.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.frontends.hostile.formats import KINDS
from tests.frontends.hostile.sweep import Answer, running_worker

#: As many as have every level of the compiler once.
COUNT = 28
#: The packages without which the files of a format cannot be made or read.
_NEEDED = {
    **dict.fromkeys(("keras_archive", "keras_hdf5", "keras_operator"), "h5py"),
    **dict.fromkeys(("onnx", "onnx_case", "onnx_operator", "artifact"), "onnx"),
    "pt2": "torch",
}


@pytest.fixture(scope="module")
def outcome_of(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Answer]]:
    """One worker for all formats: starting it takes longer than a format's files do."""
    with running_worker(tmp_path_factory.mktemp("hostile") / "models") as worker:
        yield worker


def faultless(outcome_of: Callable[[str], Answer], kind: str, count: int) -> Counter[str]:
    """What came of damaged files, none of it a fault."""
    found = [outcome_of(f"{kind} {k}") for k in range(count)]
    faults = [f"{kind} {k}: {why}" for k, (outcome, why) in enumerate(found) if outcome == "fault"]
    assert not faults, f"{len(faults)} faults:\n" + "\n".join(faults)
    return Counter(outcome for outcome, _ in found)


@pytest.mark.parametrize("kind", KINDS)
def test_damaged_files(kind: str, outcome_of: Callable[[str], Answer]) -> None:
    pytest.importorskip(_NEEDED.get(kind, "numpy"))
    found = faultless(outcome_of, kind, COUNT)
    assert found["refused"] >= COUNT // 4 and found["ran"] >= COUNT // 20


def test_files_made_to_do_harm(tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    from tests.frontends.onnx.hostile.attacks import attacks

    (tmp_path / "counted").mkdir()
    count = sum(1 for _ in attacks(tmp_path / "counted"))
    with running_worker(tmp_path / "models") as outcome_of:
        assert faultless(outcome_of, "onnx_attack", count)["refused"] >= count // 2
