"""Builds the monitor: the firmware that a session over a serial line speaks to."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tilewright.device_runtime.build import SOURCE
from tilewright.support.errors import UserError, nearest
from tilewright.support.files import replacing, text_path

MONITOR: Final = SOURCE / "monitor"
_SHARED: Final = ("monitor.c", "frames.c")
_FLAGS: Final = (
    "-std=c11",
    "-O2",
    "-ffreestanding",
    "-nostdlib",
    "-fno-unwind-tables",
    "-fno-asynchronous-unwind-tables",
)
_WARNINGS: Final = ("-Wall", "-Wextra", "-Werror")


@dataclass(frozen=True)
class MonitorBoard:
    """A board that the monitor is written for."""

    #: Its processor, as targets name it.
    cpu: str
    #: What Zig calls the machine: the target, and its processor.
    machine: tuple[str, str]
    sources: tuple[str, ...]
    script: str
    #: Where its serial port lies, and how many ticks of the counter a second has.
    line: int
    clock: int
    #: Where the timer lies that ends calls, and how often a second it counts; 0: the processor has
    #: one of its own.
    timer: int = 0
    timer_clock: int = 0


MONITOR_BOARDS: Final = {
    "mps2-an386": MonitorBoard(
        "cortex-m4",
        ("thumb-freestanding-eabihf", "cortex_m4"),
        ("arm.c", "line_cmsdk.c"),
        "mps2.ld",
        0x4000_4000,
        25_000_000,
    ),
    # An emulated board, whose instructions take a nanosecond each where they are counted.
    "virt": MonitorBoard(
        "rv32imc",
        ("riscv32-freestanding-none", "generic_rv32+m+c+zicsr+zifencei"),
        ("riscv.c", "line_16550.c"),
        "virt.ld",
        0x1000_0000,
        1_000_000_000,
        0x0200_0000,
        10_000_000,
    ),
}


def build_monitor(
    path: str | os.PathLike[str],
    board: str,
    *,
    baud: int = 115_200,
    compiler: Sequence[str] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Path:
    """Write the monitor for a board (`MONITOR_BOARDS`): an ELF file, to be flashed or emulated.

    `compiler` is the command of a C compiler for the board's processor, with what it must be told
    of it; without it, Zig is used (the package `ziglang`).
    """
    place = Path(text_path(path))
    if board not in MONITOR_BOARDS:
        raise UserError(f"there is no monitor for {board}", remedy=nearest(board, MONITOR_BOARDS))
    found = MONITOR_BOARDS[board]
    words = _zig(found, place) if compiler is None else list(compiler)
    with tempfile.TemporaryDirectory(prefix="tilewright-") as folder:
        made = Path(folder, "monitor.elf")
        command = [
            *words,
            *_FLAGS,
            *_WARNINGS,
            *_defines(board, found, baud),
            f"-Wl,-T,{found.script}",
        ]
        command += [*_SHARED, *found.sources, "-o", str(made)]
        env = {**os.environ, **(environment or {})}
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, env=env, cwd=MONITOR
        )
        if done.returncode:
            reason = f"the compiler failed: {done.stderr.strip()[-500:]}"
            raise UserError(f"cannot write {place}", reason=reason)
        with replacing(place) as file:
            file.write(made.read_bytes())
    return place


def _defines(name: str, board: MonitorBoard, baud: int) -> list[str]:
    values = {
        "BOARD": f'"{name}"',
        "PROCESSOR": f'"{board.cpu}"',
        "LINE_ADDRESS": f"{board.line:#x}u",
        "CLOCK": f"{board.clock}u",
        "BAUD": f"{baud}u",
        "TIMER_ADDRESS": f"{board.timer:#x}u",
        "TIMER_CLOCK": f"{board.timer_clock}u",
    }
    return [f"-D{key}={value}" for key, value in values.items()]


def _zig(board: MonitorBoard, place: Path) -> list[str]:
    if importlib.util.find_spec("ziglang") is None:
        raise UserError(
            f"cannot write {place}",
            reason="it takes a C compiler for the board, and none was named",
            remedy="pip install ziglang, or pass compiler=[...]",
        )
    target, processor = board.machine
    return [sys.executable, "-m", "ziglang", "cc", "-target", target, f"-mcpu={processor}"]
