"""A device that has no room, and processes that are forked."""

from __future__ import annotations

import os
import signal
import threading
import warnings
import weakref
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.gpu.driver import Driver, forget_driver
from tilewright.graph import Builder
from tilewright.runtime import Touched
from tilewright.runtime.gpu.launcher import Launched
from tilewright.simt.device import DEVICE
from tilewright.support import libcuda
from tilewright.support.errors import UserError

KERNEL = Launched(0, "k", (32, 1, 1), 0, (), (None, None))


def refuse(driver: Driver, name: str, status: int = libcuda.OUT_OF_MEMORY) -> None:
    vars(driver)[name] = lambda *_: status
    forget_driver()


def allow(driver: Driver, name: str) -> None:
    del vars(driver)[name]
    forget_driver()


@pytest.fixture
def room(cuda: tuple[Any, Driver]) -> tuple[Any, Driver]:
    """A device that says how much memory there is."""
    device, driver = cuda

    def info(free: Any, total: Any) -> int:
        free._obj.value, total._obj.value = 1000, 5000
        return 0

    vars(driver)["cuMemGetInfo_v2"] = info
    forget_driver()
    return device, driver


# ---- no room ------------------------------------------------------------------------------------


def test_what_does_not_fit_is_said(room: tuple[Any, Driver]) -> None:
    device, driver = room
    released = list[int]()
    vars(driver)["cuMemFree_v2"] = lambda address: released.append(address.value) or 0
    unused = [device.take(512), device.take(1024)]
    for address in unused:
        device.give(address)
    refuse(driver, "cuMemAlloc_v2")
    wanted = r"(?s)out of memory on cuda:0: 4096 bytes are needed.*1000 of 5000 bytes are free"
    with pytest.raises(UserError, match=wanted):
        device.take(4000)
    assert set(released) == set(unused), "what nobody uses was released first"


def test_what_a_run_without_room_held_is_released(room: tuple[Any, Driver]) -> None:
    device, driver = room
    released = list[int]()
    vars(driver)["cuMemFree_v2"] = lambda address: released.append(address.value) or 0
    held = device.take(1024)
    refuse(driver, "cuMemAlloc_v2")
    with pytest.raises(MemoryError):
        device.take(4000)
    device.give(held)
    allow(driver, "cuMemAlloc_v2")
    assert not released
    device.take(512)
    assert released == [held]
    device.give(device.take(2048))
    device.take(1536)
    assert released == [held], "where there is room, memory is kept"


def test_models_say_what_does_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    b = Builder()
    b.output(b.relu(b.input("x", "f32", ("n", 6))))
    model, x = tw.compile(b.build(), "simt"), np.ones((3, 6), np.float32)
    model(x)

    class NoRoomError(UserError, MemoryError):
        pass

    def none(size: int) -> int:
        raise NoRoomError(f"{size} bytes are needed", reason="7 are free")

    monkeypatch.setattr(DEVICE, "allocate", none)
    with pytest.raises(UserError, match=r"(?s)600064 bytes are needed.*7 are free"):
        model(np.ones((25000, 6), np.float32))
    monkeypatch.undo()
    np.testing.assert_array_equal(model(x), x)


def test_models_let_go_of_what_they_keep_for_runs_to_come() -> None:
    b = Builder()
    b.output(b.relu(b.input("x", "f32", ("n", 6))))
    model: Any = tw.compile(b.build(), "simt")
    x = np.ones((3, 6), np.float32)
    model(x)
    kept = weakref.ref(model._kept._calls[((3, 6),)][0])
    DEVICE.trim()
    assert kept() is None
    np.testing.assert_array_equal(model(x), x)


def test_graphs_that_do_not_fit_are_run_launch_by_launch(room: tuple[Any, Driver]) -> None:
    device, driver = room
    refuse(driver, "cuGraphInstantiateWithFlags")
    launched = list[int]()

    def run(_: Any) -> int:
        launched.append(1)
        device.start(KERNEL, (1, 1, 1), (), Touched())
        return 0

    entry = device.entered(run, "m")
    for _ in range(5):
        assert entry(b"words") == 0
    assert len(launched) >= 5 and not driver.launched and not device.is_capturing


def test_code_that_does_not_fit_is_said(room: tuple[Any, Driver]) -> None:
    device, driver = room
    refuse(driver, "cuModuleLoadData")
    with pytest.raises(UserError, match=r"(?s)bytes for softmax are needed.*1000 of 5000"):
        device.make("softmax", [b"code"], 0)


# ---- forks --------------------------------------------------------------------------------------


def test_memory_for_copies_is_not_touched_where_it_is_not(cuda: tuple[Any, Driver]) -> None:
    """A process that was forked does not have it: it would die."""
    device, driver = cuda
    refuse(driver, "cuCtxSetCurrent", 3)
    with pytest.raises(libcuda.CudaError, match=r"(?s)\(3\).*get_context\('spawn'\)"):
        device.crossing([np.ones(3)])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_forks_while_another_thread_holds_the_device() -> None:
    b = Builder()
    b.output(b.relu(b.input("x", "f32", (4,))))
    model, x = tw.compile(b.build(), "simt"), np.ones(4, np.float32)
    model(x)
    holds, done = threading.Event(), threading.Event()

    def hold() -> None:
        with DEVICE.lock:
            holds.set()
            done.wait(30)

    other = threading.Thread(target=hold)
    other.start()
    holds.wait(30)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if not child:
        signal.alarm(20)
        code = 1
        try:
            code = 0 if np.array_equal(model(x), x) else 2
        finally:
            os._exit(code)
    ended = os.waitpid(child, 0)[1]
    done.set()
    other.join()
    assert ended == 0


def test_kernels_that_fail_are_told_where_results_are_waited_for(cuda: tuple[Any, Driver]) -> None:
    device, driver = cuda
    copies = device.crossing([np.ones(3, np.float32)])
    copies.sent([np.ones(3, np.float32)])
    copies.fetched([((3,), np.dtype(np.float32))])
    entry = device.entered(lambda _: 0, "resnet")
    entry(b"words", copies)
    refuse(driver, "cuStreamSynchronize", 700)
    with pytest.raises(UserError, match=r"a kernel failed on cuda:0: .*given resnet\n"):
        device.check()
    with pytest.raises(UserError, match="nothing more in this process: a kernel failed"):
        device.wait()


def test_kernels_that_have_failed_are_told_where_a_graph_begins(cuda: tuple[Any, Driver]) -> None:
    device, driver = cuda
    entry = device.entered(lambda _: 0, "network")
    entry(b"words")
    refuse(driver, "cuStreamBeginCapture_v2", 700)
    with pytest.raises(UserError, match=r"a kernel failed on cuda:0: .* was given network"):
        entry(b"words")
