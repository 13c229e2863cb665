"""Runs compiled models and kernels of another architecture, under QEMU's user-mode emulation.

A small C program (`run.c`) is linked with the code and run by `qemu-ARCH`. `make emulators` fetches
both the emulator and a C compiler for all architectures into build/emulators, without root; an
emulator or cross compiler that the system has is used as well.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.codegen.llvm.threadpool import threadpool_object
from tilewright.models.native import NativeModel
from tilewright.runtime import ArrayParam, TensorSpec

Array = np.ndarray[Any, Any]

FETCHED = Path(__file__).parents[2] / "build" / "emulators"
_SOURCE = Path(__file__).parent / "run.c"
#: Less than what a test may take.
_SECONDS = 280


@dataclass(frozen=True)
class Emulator:
    """An architecture whose programs can be compiled and run here."""

    arch: str
    compiler: tuple[str, ...]
    #: What goes before a program to run it.
    runner: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict[str, str])

    def run_model(
        self, model: Any, inputs: Sequence[Array], like: Sequence[Array], threads: int = 2
    ) -> list[Array]:
        """The outputs of a model, exported as a library; they have the types and shapes of `like`.

        Sizes that the data decide are not told: no output may have any.
        """
        assert isinstance(model, NativeModel)
        program = model._program
        assert not program.records, "the run decides how large an output is"
        sizes = _sizes(program.inputs, inputs)
        with tempfile.TemporaryDirectory() as folder:
            library = Path(folder, "net.a")
            model.export_library(library)
            made = self._link(Path(folder), library)
            outputs = [np.zeros_like(a) for a in like]
            return self._run(made, inputs, outputs, [sizes[d] for d in program.dims], threads)

    def run_kernel(self, module: tw.Module, *arrays: Array, threads: int = 2) -> None:
        """Call the kernel on arrays, which are written to, as `module(*arrays)` does natively."""
        signature = module.signature
        assert all(isinstance(p, ArrayParam) for p in signature.params)
        sizes = _sizes(signature.params, arrays)
        with tempfile.TemporaryDirectory() as folder:
            code, pool = Path(folder, "kernel.o"), Path(folder, "pool.o")
            code.write_bytes(module.object_code)
            pool.write_bytes(threadpool_object(module.target.triple))
            made = self._link(Path(folder), code, pool, f'-DKERNEL="{signature.name}"')
            dims = [sizes[d] for d in signature.dims]
            results = self._run(made, arrays, [], dims, threads, given_back=arrays)
        for array, result in zip(arrays, results, strict=True):
            array[...] = result

    def _link(self, folder: Path, *parts: str | Path) -> Path:
        program = folder / "program"
        command = [*self.compiler, "-O1", "-static", str(_SOURCE), *map(str, parts)]
        self._checked([*command, "-o", str(program), "-lpthread"])
        return program

    def _run(
        self,
        program: Path,
        inputs: Sequence[Array],
        outputs: Sequence[Array],
        dims: Sequence[int],
        threads: int,
        given_back: Sequence[Array] = (),
    ) -> list[Array]:
        arrays = [np.ascontiguousarray(a) for a in inputs]
        sizes = [a.nbytes for a in (*arrays, *outputs)]
        numbers = [threads, len(arrays), len(outputs), len(dims), *sizes, *dims]
        given = np.array(numbers, np.int64).tobytes() + b"".join(a.tobytes() for a in arrays)
        raw, results, start = self._checked([*self.runner, str(program)], given), list[Array](), 0
        for array in given_back or outputs:
            part = raw[start : start + array.nbytes]
            results.append(np.frombuffer(part, array.dtype).reshape(array.shape))
            start += array.nbytes
        return results

    def _checked(self, command: Sequence[str], given: bytes = b"") -> bytes:
        environment = {**os.environ, **self.environment}
        done = subprocess.run(
            command, input=given, capture_output=True, env=environment, timeout=_SECONDS
        )
        assert done.returncode == 0, f"{command}: {done.returncode}\n{done.stderr.decode()[-2000:]}"
        return done.stdout


def _sizes(specs: Sequence[Any], arrays: Sequence[Array]) -> dict[str, int]:
    """The symbolic dimensions, read off the arrays."""
    found: dict[str, int] = {}
    for spec, array in zip(specs, arrays, strict=True):
        assert isinstance(spec, TensorSpec | ArrayParam)
        found |= {d: n for d, n in zip(spec.shape, array.shape, strict=True) if isinstance(d, str)}
    return found


# ---- finding one --------------------------------------------------------------------------------


def other_architecture() -> str:
    """The one of the two that this machine is not."""
    return "x86_64" if tw.Target.of("llvm").arch == "aarch64" else "aarch64"


def needed_emulator(arch: str, cpu: str = "max") -> Emulator:
    """An emulator of `arch`; the test is skipped where something is missing for it.

    The processor `max` has all that the emulator knows.
    """
    emulator, (compiler, environment) = _emulator(arch), _compiler(arch)
    missing = "" if emulator else f"no qemu-{arch}"
    missing = missing if compiler else f"no C compiler for {arch}"
    if missing:
        pytest.skip(f"there is {missing}: `make emulators` fetches it")
    return Emulator(arch, compiler, (emulator, "-cpu", cpu), environment)


def needed_windows() -> Emulator:
    """What runs programs of Windows; the test is skipped where it is missing."""
    runner = shutil.which("wine64") or shutil.which("wine64", path="/usr/lib/wine")
    if not runner or not (FETCHED / "ziglang").is_dir():
        pytest.skip("there is no Wine, or no C compiler for Windows: `make emulators` fetches that")
    compiler, environment = _zig("x86_64-windows-gnu")
    quiet = {"WINEDEBUG": "-all", "WINEPREFIX": str(FETCHED / "wine")}
    return Emulator("x86_64", compiler, (runner,), {**environment, **quiet})


@cache
def _emulator(arch: str) -> str:
    names = (f"qemu-{arch}-static", f"qemu-{arch}")
    places = (str(FETCHED / "usr" / "bin"), os.environ.get("PATH", ""))
    return next((f for place in places for n in names if (f := shutil.which(n, path=place))), "")


@cache
def _compiler(arch: str) -> tuple[tuple[str, ...], Mapping[str, str]]:
    """The command of a compiler that makes static programs, and what it wants to be told."""
    if (FETCHED / "ziglang").is_dir():
        system = {"arm": ("arm-linux-musleabihf", "-mcpu=cortex_a7")}
        return _zig(*system.get(arch, (f"{arch}-linux-musl",)))
    found = shutil.which(f"{arch.replace('_', '-')}-linux-gnu-gcc")
    return ((found,) if found else ()), {}


def _zig(*target: str) -> tuple[tuple[str, ...], Mapping[str, str]]:
    caches = {f"ZIG_{k}_CACHE_DIR": str(FETCHED / "cache") for k in ("GLOBAL", "LOCAL")}
    zig = (sys.executable, "-m", "ziglang", "cc", "-target", *target)
    return zig, {"PYTHONPATH": str(FETCHED), **caches}
