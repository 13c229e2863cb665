"""Single kernels on a device: called, and timed side by side."""

from __future__ import annotations

import gc
from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
from tests.emulated.emulator import other_architecture
from tests.rpc.hosts import Host, started
from tilewright import te
from tilewright.rpc.client.kernel import measured_apart


def _matmul(n: int, schedule: bool = False) -> tw.Module:
    A, B = te.placeholder((n, n), name="A"), te.placeholder((n, n), name="B")
    k = te.reduce_axis(n, name="k")
    C = te.compute((n, n), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    f = te.function([A, B], [C], name="matmul")
    return tw.build(tw.Schedule(f) if schedule else f)


@pytest.fixture(scope="module")
def device(server: Host, key: Path):
    with tw.rpc.connect(server.address, key) as device:
        yield device


def test_a_kernel_writes_to_the_arrays_of_the_caller(device: tw.rpc.Device) -> None:
    here = _matmul(48)
    there = device.load_kernel(here.as_code())
    a, b = np.random.default_rng(0).standard_normal((2, 48, 48)).astype(np.float32)
    expected, got = np.empty_like(a), np.empty_like(a)
    here(a, b, expected)
    there(a, b, got)
    assert (got == expected).all()


def test_kernels_are_timed_in_turn(device: tw.rpc.Device) -> None:
    fast, slow = (device.load_kernel(_matmul(96, plain).as_code()) for plain in (False, True))
    arrays = [np.ones((96, 96), np.float32) for _ in range(3)]
    timings = device.measure([fast, slow, fast], arrays, rounds=4, min_repeat_ms=1)
    assert [len(t.samples) for t in timings] == [4, 4, 4]
    assert min(t.min for t in timings) > 0
    assert fast.time(*arrays, repeat=2, min_repeat_ms=1).min > 0
    assert device.measure([], arrays) == []


def test_kernels_are_timed_on_arguments_of_their_own(device: tw.rpc.Device) -> None:
    small, large = (device.load_kernel(_matmul(n).as_code()) for n in (16, 96))
    sets = [[np.ones((3, n, n), np.float32) for _ in range(2)] for n in (16, 96)]
    timings = measured_apart([small, large], [[list(a) for a in s] for s in sets], 3, 1.0, 1)
    assert [len(t.samples) for t in timings] == [3, 3]
    assert 0 < timings[0].min < timings[1].min
    for each in ([], [[[]]], [[], []], 3):
        with pytest.raises(tw.rpc.DeviceLostError, match="damaged messages"):
            fields = {"rounds": 1, "min_repeat_ms": 0.0, "warmup": 0, "each": each}
            device.call("measure", {"kernels": [small.number(), large.number()], **fields})


def test_wrong_arguments_are_refused_here(device: tw.rpc.Device) -> None:
    here = _matmul(16)
    there = device.load_kernel(here.as_code())
    wrong = [np.ones((16, 16), np.float32), np.ones((16, 15), np.float32)] * 2
    with pytest.raises(tw.UserError) as told_here:
        here(*wrong[:3])
    with pytest.raises(tw.UserError) as told_there:
        there(*wrong[:3])
    assert str(told_here.value) == str(told_there.value)
    with pytest.raises(tw.UserError, match="takes 3 arguments"):
        device.measure([there], wrong)


def test_kernels_for_other_machines_are_refused(device: tw.rpc.Device) -> None:
    A = te.placeholder((4,), name="A")
    f = te.function([A], [te.compute((4,), lambda i: A[i] + 1.0, name="B")], name="one_more")
    with pytest.raises(tw.UserError, match=f"it is for {other_architecture()}"):
        device.load_kernel(tw.build(f, f"llvm -mtriple={other_architecture()}-linux-gnu").as_code())


def test_a_lost_session_is_replaced(key: Path, tmp_path: Path) -> None:
    from tests.rpc.hosts import stop

    with (
        started("server", key, tmp_path / "f") as host,
        tw.rpc.connect(host.address, key) as device,
    ):
        there, arrays = device.load_kernel(_matmul(16).as_code()), np.ones((3, 16, 16), np.float32)
        there(*arrays)
        for pid in host.sessions():
            stop(pid)
        with pytest.raises(tw.rpc.DeviceLostError, match="SIGKILL"):
            there(*arrays)
        there(*arrays)
        assert (arrays[2] == 16).all()


def test_kernels_that_nobody_needs_are_freed(device: tw.rpc.Device) -> None:
    kernel = device.load_kernel(_matmul(16).as_code())
    freed = (device.epoch, "unload_kernel", "kernel", kernel.number())
    del kernel
    gc.collect()
    assert freed in device.unused
    device.ping()
    assert not device.unused
