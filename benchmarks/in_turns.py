"""Work that is prepared side by side and timed one after another, each piece in a process."""

from __future__ import annotations

import contextlib
import multiprocessing
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

#: Seconds after which processes no longer wait for those that are not ready.
PATIENCE = 300.0


def in_turns(
    prepare: Callable[[str], Callable[[], Any]], names: Sequence[str]
) -> Iterator[tuple[str, Any]]:
    """What comes of each name, or the text of its fault.

    `prepare` is called in all processes at once; what it returns is called when all are ready, and
    while no other is.
    """
    context = multiprocessing.get_context("spawn")
    ready, turn, found = context.Barrier(len(names)), context.Lock(), context.Queue()
    arguments = [(prepare, name, ready, turn, found) for name in names]
    workers = [context.Process(target=_work, args=given) for given in arguments]
    for worker in workers:
        worker.start()
    left = set(names)
    while left and (any(w.is_alive() for w in workers) or not found.empty()):
        with contextlib.suppress(queue.Empty):
            name, result = found.get(timeout=1.0)
            left.remove(name)
            yield name, result
        if any(w.exitcode for w in workers):
            ready.abort()  # nobody need wait for what will not come
    for name in left:
        yield name, "the process ended"


def _work(
    prepare: Callable[[str], Callable[[], Any]], name: str, ready: Any, turn: Any, found: Any
) -> None:
    timed, result = None, None
    try:
        timed = prepare(name)
    except Exception as error:  # the others are still worth knowing
        result = f"{type(error).__name__}: {error}"
    _wait(ready)
    if timed is not None:
        with turn:
            try:
                result = timed()
            except Exception as error:
                result = f"{type(error).__name__}: {error}"
    found.put((name, result))
    _wait(ready)  # what ends while another is timed would disturb it


def _wait(ready: Any) -> None:
    with contextlib.suppress(threading.BrokenBarrierError):
        ready.wait(PATIENCE)
