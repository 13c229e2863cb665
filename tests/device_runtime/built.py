"""The runtime in C, built for tests, and models run by it."""

from __future__ import annotations

import os
import subprocess
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import tilewright as tw
from tilewright.runtime.artifact.container import MANIFEST, ContainerWriter

Array = np.ndarray[Any, Any]
_SECONDS = 120


@dataclass(frozen=True)
class Runtime:
    """A program that runs artifacts, and what goes before it."""

    program: Path
    runner: tuple[str, ...] = ()
    seconds: float = _SECONDS

    def call(self, *words: str | Path, leaks: bool = True) -> subprocess.CompletedProcess[str]:
        """Sanitized programs look for leaks, which takes seconds on some machines."""
        command = [*self.runner, str(self.program), *map(str, words)]
        return subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=self.seconds,
            errors="replace",
            env={**os.environ, "ASAN_OPTIONS": f"detect_leaks={int(leaks)}"},
        )

    def outputs(self, artifact: Path, model: Any, inputs: Sequence[Array]) -> list[Array]:
        """What a model gives, by files of NumPy's."""
        with tempfile.TemporaryDirectory() as folder:
            words: list[str | Path] = [artifact, "--output-dir", Path(folder, "out")]
            for spec, array in zip(model.inputs, inputs, strict=True):
                path = Path(folder, f"{spec.name}.npy")
                np.save(path, array)
                words += ["--input", f"{spec.name}={path}"]
            done = self.call(*words)
            assert done.returncode == 0, done.stderr
            return [np.load(Path(folder, "out", f"{s.name}.npy")) for s in model.outputs]


def saved(graph: Any, target: str, folder: Path) -> tuple[Any, Path]:
    """A compiled model, and its artifact."""
    model = tw.compile(graph, target)
    path = folder / "model.twm"
    model.save(path)
    return model, path


def rewritten(
    source: Path, path: Path, replaced: Mapping[str, tuple[str, bytes]], manifest: str
) -> None:
    """An artifact with another manifest and other members, whose checksums are right."""
    with zipfile.ZipFile(source) as file, ContainerWriter(path) as made:
        for old in file.namelist():
            name, data = replaced.get(old, (old, file.read(old)))
            data = manifest.encode() if old == MANIFEST else data
            made.add(name, [data], len(data))
