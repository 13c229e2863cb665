"""The system's C compiler: from source text to object files and assembly."""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Final

from tilewright.support.errors import InternalError

_NAMES: Final = ("cc", "gcc", "clang")
#: No changes to floating-point semantics; position-independent code, without unwind tables, which
#: nothing uses.
_OPTIONS: Final = (
    "-std=c99",
    "-D_POSIX_C_SOURCE=200809L",
    "-O2",
    "-ffp-contract=off",
    "-fno-strict-aliasing",
    "-fno-math-errno",
    "-fPIC",
    "-fno-asynchronous-unwind-tables",
    "-fno-stack-protector",
    "-w",
)

NO_COMPILER: Final = "there is no C compiler: neither CC nor cc, gcc or clang names one"


def find_compiler() -> list[str] | None:
    """The command that compiles C: CC, the system's compiler, or that of the package ziglang."""
    return _find(os.environ.get("CC", ""), os.environ.get("PATH", ""))


@cache
def _find(wanted: str, path: str) -> list[str] | None:
    if wanted:
        command = shlex.split(wanted)
        return command if command and shutil.which(command[0], path=path) else None
    found = next(filter(None, (shutil.which(name, path=path) for name in _NAMES)), None)
    if found is not None:
        return [found]
    if importlib.util.find_spec("ziglang") is not None:
        return [sys.executable, "-m", "ziglang", "cc"]
    return None


def compile_source(text: str, *, assembly: bool = False) -> bytes:
    """The object file of a source file, or its assembly."""
    command = find_compiler()
    if command is None:
        raise InternalError("cannot compile C", reason=NO_COMPILER)
    with tempfile.TemporaryDirectory(prefix="tilewright-") as folder:
        source, made = Path(folder, "code.c"), Path(folder, "code.s" if assembly else "code.o")
        source.write_text(text, encoding="utf-8")
        action = "-S" if assembly else "-c"
        full = [*command, *_OPTIONS, action, "-o", str(made), str(source)]
        run = subprocess.run(full, capture_output=True, text=True, check=False)
        if run.returncode:
            message = run.stderr.strip()[-2000:]
            raise InternalError(f"{command[0]} cannot compile generated C", reason=message)
        return made.read_bytes()
