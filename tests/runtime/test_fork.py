"""A forked child has its own workers."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tilewright.runtime import threads

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="forks, and counts threads in /proc"),
    # The warning is about what is tested here: forking while there are threads.
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
]

Native = Any  # conftest.Native


def sum_on(native: Native, pool: threads.Pool, n: int) -> int:
    total = ctypes.c_int64(0)
    native.run(pool.address, native.total, ctypes.addressof(total), n)
    return total.value


def worker_count() -> int:
    return sum(is_worker(task) for task in Path("/proc/self/task").iterdir())


def is_worker(task: Path) -> bool:
    try:
        return (task / "comm").read_text().strip() == "tilewright"
    except OSError:  # it ended meanwhile
        return False


def passes_in_child(check: Callable[[], bool]) -> bool:
    """Forks and runs `check` in the child; a child that hangs is killed and fails."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        signal.alarm(60)
        code = 1
        try:
            code = 0 if check() else 1
        finally:
            os._exit(code)
    return os.waitpid(pid, 0)[1] == 0


def test_child_starts_its_own_workers(native: Native) -> None:
    pool = threads.pool_for(3)
    assert sum_on(native, pool, 100) == 4950

    def check() -> bool:
        none_inherited = worker_count() == 0
        right = all(sum_on(native, pool, 100) == 4950 for _ in range(1000))
        return none_inherited and right and worker_count() == 2

    assert passes_in_child(check)
    assert sum_on(native, pool, 100) == 4950


def test_grandchild_too(native: Native) -> None:
    pool = threads.pool_for(2)
    sum_on(native, pool, 100)

    def check() -> bool:
        right = sum_on(native, pool, 100) == 4950
        return right and passes_in_child(lambda: sum_on(native, pool, 100) == 4950)

    assert passes_in_child(check)


def test_fork_while_another_thread_is_in_a_region(native: Native) -> None:
    pool = threads.pool_for(3)
    done = threading.Event()

    def forever() -> None:
        while not done.is_set():
            sum_on(native, pool, 10_000)

    busy = threading.Thread(target=forever, daemon=True)
    busy.start()
    try:
        for _ in range(30):
            assert passes_in_child(
                lambda: (
                    all(sum_on(native, pool, 100) == 4950 for _ in range(100))
                    and worker_count() == 2
                )
            )
    finally:
        done.set()
        busy.join(timeout=60)
    assert not busy.is_alive()


def test_threads_of_a_child_race_for_the_first_region(native: Native) -> None:
    pool = threads.pool_for(3)
    sum_on(native, pool, 100)

    def check() -> bool:
        sums: list[int] = []
        barrier = threading.Barrier(4)

        def work() -> None:
            barrier.wait()
            sums.extend(sum_on(native, pool, 100) for _ in range(100))

        workers = [threading.Thread(target=work) for _ in range(4)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        return sums == [4950] * 400 and worker_count() == 2

    for _ in range(10):
        assert passes_in_child(check)


def test_child_may_end_a_pool_it_never_used(native: Native) -> None:
    pool = threads.pool_for(4)
    sum_on(native, pool, 100)

    def check() -> bool:
        pool.stop()
        return sum_on(native, pool, 100) == 4950 and worker_count() == 0

    assert passes_in_child(check)
    assert pool.num_threads == 4


def _in_process(native: Native, count: int, queue: Any) -> None:
    queue.put(sum_on(native, threads.pool_for(count), 100))


def test_multiprocessing(native: Native) -> None:
    context = multiprocessing.get_context("fork")
    pool = threads.pool_for(2)
    sum_on(native, pool, 100)
    queue = context.SimpleQueue()
    processes = [context.Process(target=_in_process, args=(native, c, queue)) for c in (1, 2, 3)]
    for process in processes:
        process.start()
    deadline = time.monotonic() + 60
    for process in processes:
        process.join(timeout=deadline - time.monotonic())
        assert process.exitcode == 0
    assert [queue.get() for _ in processes] == [4950] * 3
