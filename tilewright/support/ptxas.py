"""Finds and runs NVIDIA's assembler (`ptxas`): from PTX to machine code of one architecture.

It is optional: without it, the driver compiles PTX when a kernel is loaded. The package
`nvidia-cuda-nvcc-cu12` contains it, and so do toolkits and Triton. The disassembler beside it, if
there is one, shows the code that it made.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from tilewright.support.config import config

#: Where packages keep tools, below their own folders: those of CUDA 13, of CUDA 12, Triton's.
_IN_PACKAGES: Final = (
    ("nvidia", "cu13/bin"),
    ("nvidia", "cuda_nvcc/bin"),
    ("triton", "backends/nvidia/bin"),
)
#: Environment variables that name a toolkit.
_TOOLKITS: Final = ("CUDA_HOME", "CUDA_PATH")
#: Seconds after which an assembler is killed.
_LIMIT: Final = 300


class Assembled(NamedTuple):
    """Machine code, with the messages of the assembler; or no code, and the reason."""

    code: bytes
    said: str


class Assembler(NamedTuple):
    """An assembler that runs here."""

    path: str
    version: str

    def assemble(self, text: str, architecture: str) -> Assembled:
        """The machine code of a module in PTX."""
        with tempfile.TemporaryDirectory(prefix="tilewright-") as folder:
            source, made = Path(folder, "code.ptx"), Path(folder, "code.cubin")
            source.write_text(text, encoding="utf-8")
            options = (f"-arch={architecture}", "-v", "-o", str(made), str(source))
            try:
                run = _run(self.path, *options)
            except (OSError, subprocess.TimeoutExpired) as error:
                return Assembled(b"", str(error))
            said = (run.stdout + run.stderr).replace(str(source), "the code").strip()
            is_made = run.returncode == 0 and made.exists()
            return Assembled(made.read_bytes() if is_made else b"", said)


def find_assembler() -> Assembler | None:
    """The one that `TILEWRIGHT_PTXAS` names, that of a package or a toolkit, or the system's."""
    wanted = config().ptxas
    if wanted.lower() in ("0", "off", "no", "false"):
        return None
    return _find(wanted, _searched())


def find_disassembler() -> str | None:
    """The path of `nvdisasm`, if it is found."""
    return next(_found("nvdisasm", _searched()), None)


def disassembled(code: bytes) -> str:
    """Machine code as text; empty where there is no disassembler."""
    if (path := find_disassembler()) is None:
        return ""
    with tempfile.TemporaryDirectory(prefix="tilewright-") as folder:
        file = Path(folder, "code.cubin")
        file.write_bytes(code)
        return _run(path, "-c", str(file)).stdout


@cache
def _find(wanted: str, searched: tuple[str, ...]) -> Assembler | None:
    paths = iter([wanted]) if wanted else _found("ptxas", searched)
    return next((Assembler(p, v) for p in paths if (v := _version(p))), None)


def _version(path: str) -> str:
    """The release of an assembler; empty where it does not run."""
    try:
        said = _run(path, "--version").stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""
    named = re.search(r"\bV(\d+(?:\.\d+)+)", said)
    return named[1] if named else ""


def _searched() -> tuple[str, ...]:
    """Folders where tools may be, those of packages first."""
    toolkits = (os.path.join(root, "bin") for v in _TOOLKITS if (root := os.environ.get(v)))
    return (*_package_folders(), *os.environ.get("PATH", "").split(os.pathsep), *toolkits)


@cache
def _package_folders() -> tuple[str, ...]:
    found: list[str] = []
    for package, below in _IN_PACKAGES:
        spec = importlib.util.find_spec(package)
        roots = spec.submodule_search_locations if spec else None
        found += [os.path.join(root, below) for root in roots or ()]
    return tuple(found)


def _found(name: str, searched: tuple[str, ...]) -> Iterator[str]:
    return filter(None, (shutil.which(name, path=folder) for folder in searched if folder))


def _run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=_LIMIT)
