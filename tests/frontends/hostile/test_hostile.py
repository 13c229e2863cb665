"""Damaged files of Keras and TensorFlow: each runs, or is refused with one message, soon.

They are handed to a process of its own (`worker.py`), whose death is a failure too: of a crash, of
too much time, of too much memory.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("h5py")

ROOT = Path(__file__).parents[3]
KINDS = ("graph_def", "keras_archive", "keras_hdf5", "saved_model")
#: Mutations of each format; every tenth is compiled and run.
COUNT = 100


@pytest.mark.parametrize("kind", KINDS)
def test_damaged_files(kind: str, tmp_path: Path) -> None:
    lines = [f"{kind} {k}" for k in range(COUNT)]
    done = subprocess.run(
        [sys.executable, "-m", "tests.frontends.hostile.worker", str(tmp_path / "models")],
        input="\n".join(lines) + "\n",
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])},
    )
    found = [json.loads(line) for line in done.stdout.splitlines()[1:]]
    faults = [
        f"{n}: {f['detail']}" for n, f in zip(lines, found, strict=False) if f["outcome"] == "fault"
    ]
    assert not faults, f"{len(faults)} faults:\n" + "\n".join(faults)
    assert len(found) == COUNT, f"{lines[len(found)]} ended the process: {done.stderr[-2000:]}"
    outcomes = Counter(f["outcome"] for f in found)
    assert outcomes["refused"] >= COUNT // 4 and outcomes["ran"] >= COUNT // 20
