"""Emulated boards that run the monitor, with their serial port as one of this machine."""

from __future__ import annotations

import os
import re
import select
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

from tests.emulated.boards import Board, needed_board, tools_of
from tilewright.device_runtime import MONITOR_BOARDS, build_monitor

_SECONDS = 30


def monitor_board(cpu: str) -> Board:
    """The board with a processor; the test is skipped where something is missing for it."""
    board = needed_board(cpu)
    assert MONITOR_BOARDS[board.machine].cpu == cpu
    return board


@cache
def _firmware(board: Board) -> Path:
    tools = tools_of(board)
    target, processor = MONITOR_BOARDS[board.machine].machine
    path = Path(mkdtemp(prefix="tilewright-"), "monitor.elf")
    compiler = [*tools.compiler, "-target", target, f"-mcpu={processor}"]
    return build_monitor(path, board.machine, compiler=compiler, environment=tools.environment)


@contextmanager
def running(board: Board) -> Generator[str]:
    """The path of the serial port of a board that runs the monitor."""
    tools = tools_of(board)
    quiet = ("-nographic", "-monitor", "none", "-serial", "pty", *board.options)
    command = [tools.emulator, "-M", board.machine, *quiet, "-icount", "shift=0"]
    process = subprocess.Popen(
        [*command, "-kernel", str(_firmware(board))],
        env={**os.environ, **tools.environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    try:
        yield _port(process)
    finally:
        process.kill()
        process.communicate()


def _port(process: subprocess.Popen[bytes]) -> str:
    assert process.stdout is not None
    said = b""
    while not (found := re.search(rb"redirected to (\S+)", said)):
        ready, _, _ = select.select([process.stdout], [], [], _SECONDS)
        piece = os.read(process.stdout.fileno(), 4096) if ready else b""
        assert piece, f"the emulator says: {said.decode()}"
        said += piece
    return found.group(1).decode()
