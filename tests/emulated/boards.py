"""Runs exported models on emulated boards: the firmware of examples/firmware, under QEMU.

`make emulators` fetches the emulator and a compiler into build/emulators, without root.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from tilewright.models.micro import Footprint

Array = np.ndarray[Any, Any]

_ROOT = Path(__file__).parents[2]
FETCHED = _ROOT / "build" / "emulators"
FIRMWARE = _ROOT / "examples" / "firmware"
_SECONDS = 280


class Measured(NamedTuple):
    """What a run gave, and what it took."""

    outputs: list[Array]
    instructions: int
    stack: int
    footprint: Footprint
    #: Bytes of inputs and outputs.
    exchanged: int


@dataclass(frozen=True)
class Board:
    """A microcontroller that can be emulated; `cpu` is its processor for Tilewright."""

    cpu: str
    machine: str
    emulator: str
    #: What Zig calls the machine: the target, and its processor.
    target: str
    processor: str
    script: str
    start: str
    defines: tuple[str, ...] = ()
    options: tuple[str, ...] = ()

    def run(self, model: Any, inputs: Sequence[Array]) -> Measured:
        """Export a model that was compiled for the board, and run it once."""
        tools = tools_of(self)
        if tools.missing:
            raise FileNotFoundError(tools.missing)
        arrays = [np.ascontiguousarray(a) for a in inputs]
        results = [np.zeros(s.shape, s.dtype.numpy) for s in model.outputs]
        with tempfile.TemporaryDirectory() as made:
            folder = Path(made)
            footprint = model.export_micro(folder, name="net")
            (folder / "case.c").write_text(_case(arrays, results, model))
            (folder / "inputs.bin").write_bytes(b"".join(a.tobytes() for a in arrays))
            self._link(tools, folder)
            self._emulate(tools, folder)
            raw = (folder / "outputs.bin").read_bytes()
            instructions, stack = map(int, (folder / "figures.txt").read_text().split())
        exchanged = sum(a.nbytes for a in (*arrays, *results))
        return Measured(_cut(raw, results), instructions, stack, footprint, exchanged)

    def _link(self, tools: Tools, folder: Path) -> None:
        flags = ("-O2", "-ffreestanding", "-I.", f"-I{folder}", "-Wl,-e,start")
        sources = ("main.c", self.start, str(folder / "case.c"), str(folder / "net.o"))
        output = ("-o", str(folder / "firmware.elf"))
        machine = ("-target", self.target, f"-mcpu={self.processor}", f"-Wl,-T,{self.script}")
        command = [*tools.compiler, *machine, *flags, *self.defines, *sources, *output]
        _checked(command, FIRMWARE, tools.environment)

    def _emulate(self, tools: Tools, folder: Path) -> None:
        quiet = ("-nographic", "-monitor", "none", "-serial", "none", *self.options)
        # Instructions take a nanosecond each, so that clocks count them.
        counted = ("-icount", "shift=0", "-semihosting-config", "enable=on,target=native")
        command = [tools.emulator, "-M", self.machine, *quiet, *counted, "-kernel", "firmware.elf"]
        _checked(command, folder, tools.environment)


def _cut(raw: bytes, like: Sequence[Array]) -> list[Array]:
    results, start = list[Array](), 0
    for array in like:
        part = raw[start : start + array.nbytes]
        results.append(np.frombuffer(part, array.dtype).reshape(array.shape))
        start += array.nbytes
    return results


def _case(inputs: Sequence[Array], outputs: Sequence[Array], model: Any) -> str:
    """The C file that ties the firmware to a model."""
    lines = ['#include "firmware.h"', '#include "net.h"']
    for kind, arrays in (("input", inputs), ("output", outputs)):
        for k, array in enumerate(arrays):
            lines.append(f"static uint64_t {kind}_{k}[{max(1, -(-array.nbytes // 8))}];")
        rows = ", ".join(f"{{{kind}_{k}, {a.nbytes}}}" for k, a in enumerate(arrays))
        lines.append(f"const struct tensor model_{kind}s[] = {{{rows or '{0, 0}'}}};")
        lines.append(f"const uint32_t model_{kind}_count = {len(arrays)};")
    names = [f"(void *)input_{k}" for k in range(len(inputs))]
    names += [f"(void *)output_{k}" for k in range(len(outputs))]
    lines.append(f"int32_t model_run(void) {{ return net_run({', '.join(names)}); }}\n")
    return "\n".join(lines)


def _checked(command: Sequence[str], where: Path, environment: Mapping[str, str]) -> None:
    done = subprocess.run(
        command,
        cwd=where,
        env={**os.environ, **environment},
        capture_output=True,
        stdin=subprocess.DEVNULL,
        timeout=_SECONDS,
    )
    assert done.returncode == 0, f"{command}: {done.returncode}\n{done.stderr.decode()[-2000:]}"


# ---- finding tools ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tools:
    """An emulator and a compiler, or what is missing of them."""

    emulator: str
    compiler: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def missing(self) -> str:
        if not self.emulator:
            return "there is no emulator of the board: `make emulators` fetches it"
        return "" if self.compiler else "there is no Zig: `make emulators` fetches it"


@cache
def tools_of(board: Board) -> Tools:
    fetched = shutil.which(board.emulator, path=str(FETCHED / "usr" / "bin"))
    libraries = f"{platform.machine()}-linux-gnu"
    places = [str(FETCHED / top / libraries) for top in ("usr/lib", "lib")]
    environment = {"LD_LIBRARY_PATH": os.pathsep.join(places)} if fetched else {}
    compiler: tuple[str, ...] = ()
    if (FETCHED / "ziglang").is_dir():
        compiler = (sys.executable, "-m", "ziglang", "cc")
        environment |= {f"ZIG_{k}_CACHE_DIR": str(FETCHED / "cache") for k in ("GLOBAL", "LOCAL")}
        environment["PYTHONPATH"] = str(FETCHED)
    return Tools(fetched or shutil.which(board.emulator) or "", compiler, environment)


def needed_board(cpu: str) -> Board:
    """The board with a processor; the test is skipped where something is missing for it."""
    board = BOARDS[cpu]
    if missing := tools_of(board).missing:
        pytest.skip(missing)
    return board


def _arm(cpu: str, machine: str, script: str, *defines: str) -> Board:
    processor = cpu.replace("-", "_")
    target = "thumb-freestanding-eabihf"
    return Board(cpu, machine, "qemu-system-arm", target, processor, script, "arm.c", defines)


_RV32 = Board(
    "rv32imc",
    "virt",
    "qemu-system-riscv32",
    "riscv32-freestanding-none",
    "generic_rv32+m+c",
    "virt.ld",
    "riscv.c",
    options=("-bios", "none"),
)
BOARDS = {
    board.cpu: board
    for board in (
        _arm("cortex-m4", "mps2-an386", "mps2.ld"),
        _arm("cortex-m7", "mps2-an500", "mps2.ld"),
        _arm("cortex-m55", "mps3-an547", "mps3.ld", "-DCLOCK=32000000u"),
        _RV32,
    )
}
