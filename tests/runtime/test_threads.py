"""The thread pool at work: partition, nesting, concurrency, affinity, ends."""

from __future__ import annotations

import ctypes
import gc
import itertools
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tilewright.runtime import threads
from tilewright.support.errors import InternalError, UserError

pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs pthreads")
linux_only = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")

ROOT = Path(__file__).parents[2]
Native = Any  # conftest.Native


def worker_tasks() -> list[str]:
    """The kernel's ids of this process's workers."""
    return [t.name for t in Path("/proc/self/task").glob("*") if is_worker(t)]


def is_worker(task: Path) -> bool:
    try:
        return (task / "comm").read_text().strip() == "tilewright"
    except OSError:  # it ended meanwhile
        return False


def becomes(value: Callable[[], int], expected: int) -> bool:
    """A joined thread stays listed for a moment: looks again for some seconds."""
    deadline = time.monotonic() + 10
    while value() != expected and time.monotonic() < deadline:
        time.sleep(0.01)
    return value() == expected


def ranges_of(native: Native, pool: threads.Pool | None, n: int) -> list[tuple[int, int]]:
    seen: list[tuple[int, int]] = []
    native.run_python(pool, lambda _, begin, end: seen.append((begin, end)), n)
    return sorted(seen)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("n", [2, 3, 4, 5, 6, 7, 8, 13, 64, 1000])
def test_parts_are_even_and_cut_into_halves(native: Native, count: int, n: int) -> None:
    parts = min(count, n)
    bounds = [k * (n // parts) + min(k, n % parts) for k in range(parts + 1)]
    expected = [piece for part in itertools.pairwise(bounds) for piece in pieces_of(*part)]
    ranges = ranges_of(native, threads.pool_for(count), n)
    assert ranges == (expected if count > 1 else [(0, n)])


def pieces_of(begin: int, end: int) -> list[tuple[int, int]]:
    """A half of a part, a quarter, an eighth and the rest, without those that are empty."""
    length = end - begin
    bounds = [begin, *(end - (length >> k) for k in (1, 2, 3)), end]
    return [(a, b) for a, b in itertools.pairwise(bounds) if a < b]


def test_a_slow_thread_is_helped(native: Native) -> None:
    """Whoever has run its own part takes what is left of others, the caller's too."""
    ran: dict[int, set[int]] = {0: set(), 1: set()}
    slow, pool = threading.Event(), threads.pool_for(2)

    def region(_: object, begin: int, end: int, first: int) -> None:
        ran[begin // 16].add(threading.get_native_id())
        if begin == first:
            assert slow.wait(30)
        elif begin == first + 14:  # the last piece of the slow part
            slow.set()

    for first in (0, 16):
        slow.clear()
        native.run_python(pool, lambda c, b, e, f=first: region(c, b, e, f), 32)
    assert len(ran[0]) == len(ran[1]) == 2


def test_every_index_is_visited_once(native: Native) -> None:
    for count in (1, 2, 3, 5):
        pool = threads.pool_for(count)
        for n in range(1, 200):
            visits = np.zeros(n, np.int64)
            native.run(pool.address, native.mark, visits.ctypes.data, n)
            assert (visits == 1).all(), (count, n)


def test_null_pool_and_tiny_regions_run_in_the_caller(native: Native) -> None:
    pool = threads.pool_for(2)
    assert ranges_of(native, None, 10) == [(0, 10)]
    assert ranges_of(native, pool, 1) == [(0, 1)]
    assert ranges_of(native, pool, 0) == [(0, 0)]


def test_caller_runs_the_first_part(native: Native) -> None:
    runners: dict[int, int] = {}
    everybody = threading.Barrier(3)

    def region(_: object, begin: int, end: int) -> None:
        runners[begin] = threading.get_native_id()
        everybody.wait()

    native.run_python(threads.pool_for(3), region, 3)
    assert runners[0] == threading.get_native_id()
    assert len(set(runners.values())) == 3


def test_caller_runs_the_parts_of_workers_that_sleep(native: Native) -> None:
    pool = threads.pool_for(3)
    pool.set_spin(0)
    runners = np.zeros((1000, 3), np.int64)
    for row in runners:
        native.run(pool.address, native.who, row.ctypes.data, 3)
    # No worker wakes up a thousand times while the caller takes some steps.
    assert (runners != 0).all() and (runners[:, 1:] == threading.get_ident()).any()


def test_nested_regions_are_serial(native: Native) -> None:
    pool = threads.pool_for(3)
    inner: list[list[tuple[int, int]]] = []
    native.run_python(pool, lambda _, b, e: inner.append(ranges_of(native, pool, 10)), 3)
    assert inner == [[(0, 10)]] * 3


def test_another_pool_may_run_inside_a_region(native: Native) -> None:
    outer, other = threads.pool_for(2), threads.pool_for(3)
    inner: list[int] = []
    native.run_python(outer, lambda _, b, e: inner.append(len(ranges_of(native, other, 3))), 2)
    assert len(inner) == 2 and set(inner) <= {1, 3} and 3 in inner


def test_workers_that_fell_asleep_wake_up(native: Native) -> None:
    pool = threads.pool_for(4)
    pool.set_spin(0)
    sum_of = ctypes.c_int64(0)
    for _ in range(2_000):
        native.run(pool.address, native.total, ctypes.addressof(sum_of), 100)
    assert sum_of.value == 2_000 * 4950


def hammer(native: Native, pool: int, times: int, n: int, results: list[int]) -> None:
    sum_of = ctypes.c_int64(0)
    for _ in range(times):
        native.run(pool, native.total, ctypes.addressof(sum_of), n)
    results.append(sum_of.value)


def run_together(tasks: list[Callable[[], None]]) -> None:
    workers = [threading.Thread(target=task, daemon=True) for task in tasks]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(timeout=120)
    assert not any(worker.is_alive() for worker in workers), "deadlock"


@pytest.mark.parametrize("sizes", [(2, 2), (2, 3), (3, 3, 4)], ids=str)
@pytest.mark.parametrize("spin", [0, 50_000])
def test_python_threads_share_and_split_pools(
    native: Native, sizes: tuple[int, ...], spin: int
) -> None:
    # Equal sizes are the same pool, contended; different ones are pools side by side.
    pools = [threads.pool_for(size) for size in sizes]
    for pool in pools:
        pool.set_spin(spin)
    results: list[int] = []
    run_together([lambda p=p: hammer(native, p.address, 10_000, 50, results) for p in pools])
    assert results == [10_000 * 1225] * len(sizes)


def test_pools_are_shared_and_end_with_their_last_holder(native: Native) -> None:
    gc.collect()  # what earlier tests left behind
    first, second = threads.pool_for(6), threads.pool_for(6)
    assert first is second and first.num_threads == 6
    assert threads.pool_for(5) is not first
    before, others = threading.active_count(), set(worker_tasks())
    ranges_of(native, first, 6)
    if sys.platform == "linux":
        own = set(worker_tasks()) - others
        assert len(own) == 5
        del first, second
        assert becomes(lambda: own.isdisjoint(worker_tasks()), True)
    assert threading.active_count() == before


@linux_only
def test_workers_start_at_the_first_region(native: Native) -> None:
    before = set(worker_tasks())
    pool = threads.pool_for(9)
    assert pool.num_threads == 9
    assert set(worker_tasks()) <= before


def test_a_stopped_pool_runs_serially(native: Native) -> None:
    pool = threads.pool_for(8)
    assert len(ranges_of(native, pool, 8)) == 8
    pool.stop()
    assert pool.num_threads == 1
    assert ranges_of(native, pool, 8) == [(0, 8)]


@linux_only
def test_workers_take_no_signals(native: Native) -> None:
    pool = threads.pool_for(2)
    ranges_of(native, pool, 2)
    for task in worker_tasks():
        status = Path(f"/proc/self/task/{task}/status").read_text()
        blocked = int(status.split("SigBlk:")[1].split()[0], 16)
        assert blocked & (1 << 1) and blocked & (1 << 14), (
            "SIGINT and SIGTERM are left to the program"
        )
    assert pool.num_threads == 2


@linux_only
def test_affinity_ties_the_workers_and_not_the_caller(native: Native) -> None:
    cpus = threads.available_cpus()
    chosen = [cpus[-1], cpus[0]]
    pool = threads.pool_for(3, chosen)
    mine = os.sched_getaffinity(0)
    placed: dict[int, set[int]] = {}
    everybody = threading.Barrier(3)  # no thread runs two parts

    def region(_: object, begin: int, end: int) -> None:
        placed[begin] = os.sched_getaffinity(0)
        everybody.wait()

    native.run_python(pool, region, 3)
    assert placed == {0: mine, 1: {chosen[1]}, 2: {chosen[0]}}
    assert os.sched_getaffinity(0) == mine


def test_affinity_alone_sets_the_number_of_threads(native: Native) -> None:
    cpus = threads.available_cpus()
    assert threads.pool_for(affinity=cpus).num_threads == len(cpus)


def test_environment_sets_the_number_of_threads(
    native: Native, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILEWRIGHT_NUM_THREADS", "11")
    assert threads.pool_for().num_threads == 11
    monkeypatch.delenv("TILEWRIGHT_NUM_THREADS")
    assert threads.pool_for().num_threads == len(threads.available_cpus())


def test_impossible_pools_are_refused(native: Native) -> None:
    with pytest.raises(UserError, match=r"pool of 0 threads.*\n.*from 1 to 4096"):
        threads.pool_for(0)
    for asked in ("2", 2.5):
        with pytest.raises(UserError, match=r"cannot make a pool of ('2'|2.5) threads"):
            threads.pool_for(asked)  # type: ignore[arg-type]
    with pytest.raises(UserError, match=r"processors \[99999\]: this process may not use them"):
        threads.pool_for(2, [99999])


def test_a_pool_needs_its_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "_registry", threads._Registry())
    with pytest.raises(InternalError, match="not installed"):
        threads.pool_for(2)


def run_script(script: str) -> None:
    head = """
        import ctypes, threading, resource
        import llvmlite.binding as llvm
        from tilewright.codegen.llvm.threadpool import threadpool_object
        from tilewright.runtime import threads
        threads.install(threadpool_object(llvm.get_process_triple()))
        run = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p,
                               ctypes.c_int64)(threads.symbols()["tw_pool_run"])
        # A C function that ignores what it is given serves as the region.
        region = ctypes.cast(ctypes.CDLL(None).getpid, ctypes.c_void_p)
        """
    lines = [line[8:] for line in (head + script).splitlines()]
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "ok", "")


def test_exit_with_live_pools_is_clean() -> None:
    run_script("""
        pools = [threads.pool_for(k) for k in (2, 3, 4)]
        for pool in pools:
            run(pool.address, region, None, 100)
        print("ok")
        """)


def test_exit_while_a_daemon_thread_runs_regions_is_clean() -> None:
    run_script("""
        pool = threads.pool_for(3)
        def forever():
            while True:
                run(pool.address, region, None, 100)
        for _ in range(2):
            threading.Thread(target=forever, daemon=True).start()
        for _ in range(1000):
            run(pool.address, region, None, 100)
        print("ok")
        """)


@linux_only
def test_threads_that_the_system_refuses_are_done_without() -> None:
    run_script("""
        pool = threads.pool_for(500)
        used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + (64 << 20), -1))
        for _ in range(100):
            run(pool.address, region, None, 10_000)
        assert 1 <= pool.num_threads < 500, pool.num_threads
        print("ok")
        """)
