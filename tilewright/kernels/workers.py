"""Processes that compile kernels side by side.

LLVM's Python binding holds a global lock, so threads would take turns. A worker is a fresh
interpreter that reads loop functions as text and writes packed kernels, until its input ends. It
imports nothing of the user's program (which `multiprocessing` would run anew), shares no memory
with it, and is out of reach of Ctrl-C at the terminal: its parent ends it, and where the parent was
killed, the end of its input does. What a worker fails to compile, the parent compiles itself, and
so gets to see the error; not so where the worker crashed, as the parent would.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

from tilewright.ir import Block, Function, function_text, walk
from tilewright.kernels.compiled import Options, compile_function, compile_text
from tilewright.support.collector import collecting_rarely
from tilewright.support.config import config
from tilewright.support.errors import InternalError
from tilewright.support.faults import during
from tilewright.target import Target

#: Fewer kernels than this are compiled before another interpreter would have started.
_WORTH_A_WORKER = 4
#: Seconds after which a process that has closed its output has ended.
_ENDS_WITHIN = 10.0
#: Signals by which a program ends that is at fault itself.
_CRASHES = [
    getattr(signal, name)
    for name in ("SIGSEGV", "SIGABRT", "SIGBUS", "SIGILL", "SIGFPE")
    if hasattr(signal, name)
]


class KernelCrashError(InternalError):
    """LLVM ended the process that compiled a kernel."""


def compile_side_by_side(
    functions: Sequence[Function], target: Target, options: Options
) -> list[bytes]:
    """Packed kernels of all functions; this process and its workers take one after the other."""
    work = _Work(functions, target, options)
    with _workers(work, _worker_count(len(functions))) as threads:
        work.compile_here()
        for thread in threads:
            thread.join()
        # What a worker took and did not bring back.
        work.compile_here()
    return [work.done[k] for k in range(len(functions))]


def compile_in_worker(function: Function, target: Target, options: Options) -> bytes:
    """A packed kernel that a worker compiles: if that crashes, this process does not."""
    work = _Work([function], target, options)
    with _workers(work, 1) as threads:
        for thread in threads:
            thread.join()
        work.compile_here()
    return work.done[0]


def _worker_count(kernels: int) -> int:
    jobs = config().compile_jobs or len(_cpus())
    can_start = bool(sys.executable) and kernels >= _WORTH_A_WORKER
    return min(jobs - 1, kernels // 2) if can_start else 0


def _cpus() -> Sequence[int]:
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return range(os.cpu_count() or 1)


class _Work:
    """The functions that wait, and the kernels that are done, by number."""

    def __init__(self, functions: Sequence[Function], target: Target, options: Options) -> None:
        self.functions, self.target, self.options = functions, target, options
        self.done: dict[int, bytes] = {}
        #: The signals that ended workers, by the functions that they were at.
        self.crashes: dict[int, str] = {}
        # Large ones first, so that the last to end does not end much later than the others.
        order = sorted(range(len(functions)), key=lambda k: -_size(functions[k]))
        self.waiting = deque(order)

    def take(self) -> int | None:
        try:
            return self.waiting.popleft()
        except IndexError:
            return None

    def compile_here(self) -> None:
        """Compile what waits, in this process."""
        while not self.crashes and (k := self.take()) is not None:
            self.done[k] = compile_function(self.functions[k], self.target, self.options)
        for k, cause in self.crashes.items():
            with during("kernel", self.functions[k].name, self.functions[k]):
                raise KernelCrashError("the compiler crashed", reason=cause)


def _size(function: Function) -> int:
    """How long a function may take to compile, compared to others: reductions are cut finely."""
    blocks = [s for s in walk(function.body) if isinstance(s, Block)]
    return sum(1 + 8 * (b.init is not None) for b in blocks)


# ---- this side ----------------------------------------------------------------------------------


@contextmanager
def _workers(work: _Work, count: int) -> Generator[list[threading.Thread]]:
    """Threads that each feed one worker; the workers end with the block, whatever ends it."""
    processes = [p for p in (_start() for _ in range(count)) if p is not None]
    threads = [threading.Thread(target=_feed, args=(p, work), daemon=True) for p in processes]
    try:
        for thread in threads:
            thread.start()
        yield threads
    finally:
        for process in processes:
            _end(process)


def _start() -> subprocess.Popen[bytes] | None:
    root = str(Path(__file__).parents[2])
    paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
    try:
        return subprocess.Popen(
            [sys.executable, "-c", "from tilewright.kernels.workers import serve; serve()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
            start_new_session=True,
        )
    except OSError:
        return None


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with suppress(OSError):
                pipe.close()


def _feed(process: subprocess.Popen[bytes], work: _Work) -> None:
    assert process.stdin is not None and process.stdout is not None
    head = {"target": str(work.target), "options": asdict(work.options)}
    with suppress(OSError, ValueError):
        _write(process.stdin, json.dumps(head).encode())
        if _read(process.stdout) is None:
            # It did not even start, which is nothing that a kernel could be blamed for.
            return
        while (k := work.take()) is not None:
            answer = None
            try:
                _write(process.stdin, function_text(work.functions[k]).encode())
                answer = _read(process.stdout)
            finally:
                if answer:
                    work.done[k] = answer
                elif (cause := _crash(process) if answer is None else None) is not None:
                    work.crashes[k] = cause
                else:
                    work.waiting.append(k)
            if not answer:
                return


def _crash(process: subprocess.Popen[bytes]) -> str | None:
    """The signal by which a process ended, if that was its own doing."""
    with suppress(subprocess.TimeoutExpired):
        code = -process.wait(timeout=_ENDS_WITHIN)
        return next((s.name for s in _CRASHES if s == code), None)
    return None


# ---- the other side -----------------------------------------------------------------------------


def serve() -> None:
    """Compile what comes in until nothing more does."""
    source, sink = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    # Whatever prints must not end up between the answers.
    os.dup2(2, 1)
    head = _read(source)
    if head is None:
        return
    settings: dict[str, Any] = json.loads(head)
    target, options = Target.of(settings["target"]), Options(**settings["options"])
    texts = queue.SimpleQueue[bytes]()
    threading.Thread(target=_receive, args=(source, texts), daemon=True).start()
    _write(sink, b"")
    with collecting_rarely():
        while True:
            text = texts.get()
            try:
                answer = compile_text(text.decode(), target, options)
            except Exception:
                # The parent compiles it again and sees the error.
                answer = b""
            _write(sink, answer)


def _receive(source: IO[bytes], texts: queue.SimpleQueue[bytes]) -> None:
    """Pass on what comes in. Its end ends the process, whatever that is compiling: nobody waits."""
    while (text := _read(source)) is not None:
        texts.put(text)
    os._exit(0)


def _write(pipe: IO[bytes], data: bytes) -> None:
    pipe.write(len(data).to_bytes(8, "little"))
    pipe.write(data)
    pipe.flush()


def _read(pipe: IO[bytes]) -> bytes | None:
    head = pipe.read(8)
    if len(head) < 8:
        return None
    size = int.from_bytes(head, "little")
    data = pipe.read(size)
    return data if len(data) == size else None
