"""Servers and trackers as processes of their own, for tests."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import numpy as np

import tilewright as tw
from tilewright.graph import Builder

TARGET = str(tw.Target.of("llvm"))


class Host:
    """A process of `tilewright rpc`, and where it listens."""

    def __init__(self, process: subprocess.Popen[str], address: str, folder: Path) -> None:
        self.process, self.address, self.folder = process, address, folder

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    def sessions(self) -> list[int]:
        """The processes of sessions, and the one that waits for the next."""
        return [pid for pid in children(self.process.pid) if "session" in command(pid)]

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@contextlib.contextmanager
def started(action: str, key: Path, folder: Path, *options: str, **env: str) -> Generator[Host]:
    """A server or a tracker, until the block ends."""
    words = [sys.executable, "-m", "tilewright", "rpc", action, "--key-file", str(key)]
    if action == "server" and "--target" not in options:
        words += ["--target", TARGET]
    process = subprocess.Popen(
        [*words, "--folder", str(folder), *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, **env},
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("listening on "), line
        yield Host(process, line.split()[-1], folder)
    finally:
        process.terminate()
        try:
            process.wait(10)
        finally:
            process.kill()


def children(pid: int) -> list[int]:
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):
            found += [int(c) for c in (task / "children").read_text().split()]
    return found


def command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


#: Bytes that a process may come to hold, whatever it is sent: for threads, and to be used again.
FLAT_BYTES = 16 << 20


def resident(pid: int) -> int:
    """Bytes of memory that a process holds."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def until(condition: Callable[[], Any], seconds: float = 15.0) -> Any:
    """Wait for something to become true; what it then is."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)
    return found


def classifier(seed: int = 0) -> tw.graph.Module:
    rng = np.random.default_rng(seed)
    b = Builder()
    x = b.input("x", "f32", ("n", 16))
    hidden = b.relu(b.matmul(x, rng.standard_normal((16, 32)).astype(np.float32)))
    b.output(b.softmax(b.matmul(hidden, rng.standard_normal((32, 10)).astype(np.float32))))
    return b.build()


def data(n: int = 3, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((n, 16)).astype(np.float32)


def files_below(folder: Path) -> list[Path]:
    """All files, also while others remove them."""
    return [Path(at) / name for at, _, names in os.walk(folder) for name in names]


def artifacts_below(folder: Path) -> list[Path]:
    return [p for p in files_below(folder) if p.suffix == ".twm"]


def stop(pid: int, number: int = signal.SIGKILL) -> None:
    """Send a signal; a process that it must end has ended then, which takes a while under load."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
    end = time.monotonic() + 10
    while number == signal.SIGKILL and _runs(pid) and time.monotonic() < end:
        time.sleep(0.01)


def _runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"
