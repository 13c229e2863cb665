"""Damaged and malicious files through the whole compiler: each runs, or is refused.

They are handed to a process of its own (`worker.py`), whose death is a failure too: of a crash, of
too much time, of too much memory.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.frontends.onnx.hostile.attacks import attacks
from tests.frontends.onnx.hostile.seeds import SEEDS

ROOT = Path(__file__).parents[4]
#: Mutations of each model.
COUNT = 160


class Worker:
    """The process; a new one takes the place of one that died."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: Any = None

    def ask(self, what: str) -> tuple[str, str]:
        """What came of one model."""
        process = self._process or self._start()
        process.stdin.write(f"{what}\n")
        process.stdin.flush()
        answer = process.stdout.readline()
        if answer:
            found = json.loads(answer)
            return found["outcome"], found["detail"]
        self._process = None
        return "fault", f"the process ended: {process.wait()}"

    def _start(self) -> Any:
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.frontends.onnx.hostile.worker", str(self._folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=environment,
        )
        self._process.stdout.readline()
        return self._process

    def close(self) -> None:
        if self._process is not None:
            self._process.stdin.close()
            self._process.wait()


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[Worker]:
    made = Worker(tmp_path / "models")
    yield made
    made.close()


def outcomes(worker: Worker, kind: str, count: int) -> Counter[str]:
    found = {f"{kind} {k}": worker.ask(f"{kind} {k}") for k in range(count)}
    faults = [f"{n}: {detail}" for n, (outcome, detail) in found.items() if outcome == "fault"]
    assert not faults, f"{len(faults)} faults:\n" + "\n".join(faults)
    return Counter(outcome for outcome, _ in found.values())


@pytest.mark.parametrize("kind", sorted(SEEDS))
def test_damaged_models(worker: Worker, kind: str) -> None:
    found = outcomes(worker, kind, COUNT)
    assert found["refused"] >= COUNT // 4 and found["ran"] >= COUNT // 20


def test_attacks(worker: Worker, tmp_path: Path) -> None:
    (tmp_path / "again").mkdir()
    count = sum(1 for _ in attacks(tmp_path / "again"))
    assert count + COUNT * len(SEEDS) >= 1000
    found = outcomes(worker, "attack", count)
    assert found["refused"] >= count // 2
