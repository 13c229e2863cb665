"""A Python of another architecture, under emulation, which runs models out of artifacts.

`make emulators` fetches it. It has NumPy and no LLVM, as a device has that Python runs on.
"""

from __future__ import annotations

import os
import pickle
import struct
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.emulated.emulator import FETCHED, needed_emulator, other_architecture

_REPOSITORY = Path(__file__).parents[2]
_WORKER = """
import pickle, struct, sys, warnings
import tilewright as tw
warnings.simplefilter("ignore")
given, told = sys.stdin.buffer, sys.stdout.buffer
while head := given.read(8):
    path, inputs = pickle.loads(given.read(*struct.unpack("<q", head)))
    try:
        answer = tw.load(path, threads=1).run(inputs)
    except Exception as error:
        answer = f"{type(error).__name__}: {error}"
    data = pickle.dumps(answer)
    told.write(struct.pack("<q", len(data)) + data)
    told.flush()
"""


class ForeignPython:
    """A process that loads artifacts and runs them, one after the other."""

    def __init__(self) -> None:
        self.arch = other_architecture()
        home = FETCHED / f"python-{self.arch}"
        pythons = sorted((home / "root/usr/bin").glob("python3.*"))
        if not pythons or not (home / "site" / "numpy").is_dir():
            pytest.skip(f"there is no Python for {self.arch}: `make emulators` fetches it")
        system = home / "root" / "lib" / f"{self.arch}-linux-gnu"
        loader = next(p for p in sorted(system.parent.glob("*/ld-linux-*")))
        libraries = f"{system}:{home / 'root/usr/lib' / system.name}"
        runner = needed_emulator(self.arch).runner
        self._command = [*runner, str(loader), "--library-path", libraries, str(pythons[0])]
        paths = os.pathsep.join([str(home / "site"), str(_REPOSITORY)])
        own = {"PYTHONHOME": str(home / "root/usr"), "PYTHONPATH": paths}
        # Compiling packages under emulation takes a minute, once.
        own["PYTHONDONTWRITEBYTECODE"] = ""
        self._environment = {**os.environ, **own}
        self._process: subprocess.Popen[bytes] | None = None

    def run(self, artifact: Path, inputs: Sequence[Any]) -> list[Any]:
        """What a model gives there; a process that a model ends is started again for the next."""
        if self._process is None or self._process.poll() is not None:
            words = [*self._command, "-c", _WORKER]
            self._process = subprocess.Popen(
                words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=self._environment
            )
        process = self._process
        assert process.stdin is not None and process.stdout is not None
        data = pickle.dumps((str(artifact), list(inputs)))
        process.stdin.write(struct.pack("<q", len(data)) + data)
        process.stdin.flush()
        head = process.stdout.read(8)
        assert head, f"the process ended: {process.wait()}"
        answer = pickle.loads(process.stdout.read(*struct.unpack("<q", head)))
        assert not isinstance(answer, str), answer
        return answer

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
