"""Graphs of launches, made through a driver that only writes down what it is asked for."""

from __future__ import annotations

import gc
import signal
import threading
import weakref
from typing import Any

import pytest

from tests.gpu.driver import Driver
from tilewright.runtime import Touched
from tilewright.runtime.gpu.launcher import Launched
from tilewright.support import libcuda
from tilewright.support.errors import UserError

A, B, C, D, E = ((k * 1024, k * 1024 + 512) for k in range(1, 6))
KERNEL = Launched(0, "k", (32, 1, 1), 0, (), (None, None))


def launch(device: Any, reads: list[tuple[int, int]], writes: list[tuple[int, int]]) -> None:
    device.start(KERNEL, (1, 1, 1), (), Touched(reads, writes))


def test_a_graph_has_the_edges_that_memory_asks_for(cuda: tuple[Any, Driver]) -> None:
    device, driver = cuda

    def run(_: Any) -> int:
        launch(device, [A], [B])
        launch(device, [A], [C])
        device.store(D[0], b"\1\2")
        device.copy(E[0], C[0], 512)
        launch(device, [B, E], [A])
        return 0

    entry = device.entered(run, "m")
    for _ in range(4):
        entry(b"words")
    assert driver.graph == [
        ("kernel", ()),
        ("kernel", ()),
        ("set", ()),
        ("set", (3,)),
        ("copy", (2,)),
        ("kernel", (1, 5)),
    ]
    assert driver.launched == [77, 77, 77]


def test_one_after_another(cuda: tuple[Any, Driver]) -> None:
    device, driver = cuda
    device.side_by_side = False
    launches = [([A], [B]), ([A], [C]), ([A], [D])]

    def run(_: Any) -> int:
        for reads, writes in launches:
            launch(device, reads, writes)
        return 0

    entry = device.entered(run, "m")
    entry(b"words")
    entry(b"words")
    assert [waits for _, waits in driver.graph] == [(), (1,), (2,)]


def test_runs_in_one_graph_stay_apart(cuda: tuple[Any, Driver]) -> None:
    """What is timed takes turns: nothing of a run begins before the one before it is done."""
    device, driver = cuda
    first = device.entered(lambda _: launch(device, [A], [B]) or launch(device, [A], [C]) or 0, "m")
    second = device.entered(
        lambda _: launch(device, [A], [D]) or launch(device, [A], [E]) or 0, "m"
    )
    device.together(lambda: (first(b"words"), second(b"words")))()
    assert [waits for _, waits in driver.graph] == [(), (), (1, 2), (1, 2)]
    assert driver.launched == [77]


def test_what_runs_together_is_kept(cuda: tuple[Any, Driver]) -> None:
    """A graph uses the code and the memory of what was captured."""
    device, _ = cuda

    class Run:
        def __call__(self) -> None:
            launch(device, [A], [B])

    run = Run()
    kept = weakref.ref(run)
    replayed = device.together(run)
    del run
    gc.collect()
    assert kept() is not None
    del replayed
    gc.collect()
    assert kept() is None


def test_blocks_that_wait_for_each_other_are_launched_together(cuda: tuple[Any, Driver]) -> None:
    """Two such launches must not hold half of the device each: the second waits for the first."""
    device, driver = cuda
    together = KERNEL._replace(is_cooperative=True)

    def run(_: Any) -> int:
        launch(device, [A], [B])
        device.start(together, (4, 1, 1), (), Touched([A], [C]))
        device.start(together, (4, 1, 1), (), Touched([A], [D]))
        return 0

    entry = device.entered(run, "m")
    entry(b"words")
    entry(b"words")
    assert driver.graph == [("kernel", ()), ("together", ()), ("together", (2,))]


def test_more_blocks_than_there_is_room_for(cuda: tuple[Any, Driver]) -> None:
    device, driver = cuda
    driver.cuLaunchCooperativeKernel = lambda *_: libcuda.TOO_MANY_BLOCKS
    together = KERNEL._replace(is_cooperative=True)
    with pytest.raises(UserError, match="its 200 blocks wait for each other, and have no room"):
        device.start(together, (200, 1, 1), (), Touched())


@pytest.mark.parametrize("version", [12020, 13000])
def test_kernels_that_wait_by_themselves_begin_early(
    cuda: tuple[Any, Driver], version: int
) -> None:
    """They wait for the beginning of kernels that do so too, and for the end of everything else."""
    device, driver = cuda
    driver.version = version
    waiting = KERNEL._replace(waits=True)

    def run(_: Any) -> int:
        device.start(waiting, (1, 1, 1), (), Touched([A], [B]))
        device.copy(E[0], A[0], 512)
        device.start(waiting, (1, 1, 1), (), Touched([B, E], [C]))
        launch(device, [C], [D])
        device.start(waiting, (1, 1, 1), (), Touched([D], [A]))
        return 0

    entry = device.entered(run, "m")
    entry(b"words")
    entry(b"words")
    ended, begun = (0, 0), (1, 1)
    waits = [(), (), (1, 2), (3,), (4,)]
    assert [found for _, found in driver.graph] == waits
    edges = [{}, {1: begun, 2: ended}, {4: ended}]
    assert driver.edges == ([] if version < 12030 else edges)


def test_blocks_of_such_kernels_are_spread_evenly(cuda: tuple[Any, Driver]) -> None:
    """A multiprocessor has room for its share of the blocks, and for no more."""
    device, driver = cuda
    waiting = KERNEL._replace(waits=True)
    for blocks in (60, 150, 1000):
        device.start(waiting, (blocks, 1, 1), (), Touched())
    device.start(KERNEL, (60, 1, 1), (), Touched())
    room = [(228 << 10) // (size + 1024) if size else None for size in driver.shared]
    assert room == [1, 2, None, None]


# ---- what fails ---------------------------------------------------------------------------------


def test_a_kernel_that_fails_is_told_with_what_to_do(cuda: tuple[Any, Driver]) -> None:
    device, driver = cuda
    vars(driver)["cuStreamSynchronize"] = lambda *_: 700
    libcuda._function.cache_clear()
    with pytest.raises(libcuda.CudaError, match=r"(?s)\(700\).*start the process anew"):
        device.wait()


def test_a_process_that_was_forked_is_told_what_to_do(cuda: tuple[Any, Driver]) -> None:
    device, driver = cuda
    vars(driver)["cuCtxSetCurrent"] = lambda *_: 3
    libcuda._function.cache_clear()
    with pytest.raises(libcuda.CudaError, match=r"(?s)\(3\).*get_context\('spawn'\)"):
        device.wait()


@pytest.mark.parametrize("status", [3, 700])
def test_what_goes_away_then_goes_in_silence(
    cuda: tuple[Any, Driver], status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody is there to take an error of what is collected."""
    device, driver = cuda
    entry = device.entered(lambda _: launch(device, [A], [B]) or 0, "m")
    for _ in range(3):
        entry(b"words")
    for name in ("cuGraphExecDestroy", "cuModuleUnload", "cuStreamSynchronize", "cuCtxSetCurrent"):
        monkeypatch.setattr(driver, name, lambda *_: status, raising=False)
    libcuda._function.cache_clear()
    raised = list[Any]()
    monkeypatch.setattr("sys.unraisablehook", raised.append)
    del entry
    gc.collect()
    device.unmake(KERNEL)
    assert not raised


def test_other_models_say_why_they_do_not_run(cuda: tuple[Any, Driver]) -> None:
    """The driver forgives no fault of a kernel: the first error says what was running, later ones
    that it was this."""
    device, driver = cuda
    run = device.entered(lambda _: launch(device, [A], [B]) or 0, "resnet")
    other = device.entered(lambda _: launch(device, [A], [B]) or 0, "bert")
    run(b"words")
    vars(driver)["cuStreamSynchronize"] = vars(driver)["cuLaunchKernel"] = lambda *_: 700
    libcuda._function.cache_clear()
    with pytest.raises(UserError, match=r"a kernel failed on cuda:0: .*given resnet\n"):
        device.wait()
    for _ in range(2):
        with pytest.raises(UserError, match=r"nothing more in this process: a kernel failed.*resn"):
            other(b"words")


@pytest.mark.usefixtures("interruptible")
def test_interrupts_leave_no_half_graphs(cuda: tuple[Any, Driver]) -> None:
    device, driver = cuda
    begin = driver.cuStreamBeginCapture_v2

    def interrupted(*args: Any) -> int:
        signal.raise_signal(signal.SIGINT)
        return begin(*args)

    vars(driver)["cuStreamBeginCapture_v2"] = interrupted
    libcuda._function.cache_clear()
    entry = device.entered(lambda _: launch(device, [A], [B]) or 0, "m")
    entry(b"words")
    with pytest.raises(KeyboardInterrupt):
        entry(b"words")
    assert not device.is_capturing and not driver._capturing
    vars(driver)["cuStreamBeginCapture_v2"] = begin
    libcuda._function.cache_clear()
    driver.graph.clear()
    entry(b"words")
    assert driver.launched == [77]


def test_what_other_threads_hand_over_is_no_part_of_a_graph(cuda: tuple[Any, Driver]) -> None:
    device, driver = cuda
    recorded = list[bool]()
    vars(driver)["cuEventRecord"] = lambda *_: recorded.append(driver._capturing) or 0
    other = threading.Thread(target=device.hand_over, args=(5,))

    def run(_: Any) -> int:
        launch(device, [A], [B])
        if device.is_capturing:
            other.start()
            other.join(0.05)
        return 0

    entry = device.entered(run, "m")
    entry(b"words")
    entry(b"words")
    other.join()
    assert recorded == [False]


def test_two_threads_that_take_times(cuda: tuple[Any, Driver]) -> None:
    """Each sees launches one by one, and nobody does so afterwards."""
    device, _ = cuda
    inside, seen = threading.Event(), list[bool]()

    def timed() -> None:
        with device.one_by_one():
            inside.set()
            seen.append(device.waits)

    other = threading.Thread(target=timed)
    with device.one_by_one():
        other.start()
        inside.wait(0.05)
    other.join()
    assert seen == [True] and not device.waits


def test_launches_that_are_timed_stand_at_a_gate(cuda: tuple[Any, Driver]) -> None:
    """Until both events and the kernel are there; but for the first launch, which may wait."""
    device, driver = cuda
    calls = list[str]()

    def noting(name: str, value: int = 0) -> None:
        def call(*args: Any) -> int:
            calls.append(name)
            if name == "cuEventElapsedTime":
                args[0]._obj.value = 0.5
            return value

        vars(driver)[name] = call

    for name in ("cuStreamWaitValue32_v2", "cuEventRecord", "cuLaunchKernel", "cuEventElapsedTime"):
        noting(name)
    with device.one_by_one() as times:
        launch(device, [A], [B])
        assert calls == ["cuLaunchKernel"] and not times
        launch(device, [A], [B])
    assert calls[1:] == [
        "cuStreamWaitValue32_v2",
        "cuEventRecord",
        "cuLaunchKernel",
        "cuEventRecord",
        "cuEventElapsedTime",
    ]
    assert [t.nanoseconds for t in times] == [500_000]
    assert not device.errors().any(), "the gate is no error record"
