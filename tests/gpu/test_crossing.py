"""NumPy arrays that a GPU model is run on: copied by the run, through memory that is kept."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.gpu.driver import Driver
from tilewright.graph import Builder
from tilewright.graph import Module as Graph
from tilewright.runtime import TO_DEVICE, Copied, LaunchTime, Touched
from tilewright.runtime.gpu import staging
from tilewright.runtime.gpu.arrays import DeviceArray
from tilewright.runtime.gpu.crossing import Crossing
from tilewright.runtime.gpu.launcher import Launched
from tilewright.simt.device import DEVICE

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(0)
WEIGHTS = RNG.standard_normal((6, 4)).astype(np.float32)
KERNEL = Launched(0, "k", (32, 1, 1), 0, (), (None, None))


def random(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


def graph() -> Graph:
    b = Builder()
    x, bias = b.input("x", "f32", ("n", 6)), b.input("bias", "f32", (4,))
    y = b.add(b.matmul(x, WEIGHTS), bias)
    b.output(b.relu(y))
    b.output(b.softmax(y))
    return b.build()


@pytest.fixture(scope="module")
def model() -> Any:
    return tw.compile(graph(), "simt")


@pytest.fixture(scope="module")
def here() -> Any:
    return tw.compile(graph())


def on_device(array: Array) -> DeviceArray:
    return DeviceArray(DEVICE, array.shape, array.dtype).fill(array)


def pieces() -> set[int]:
    return {id(p) for kept in DEVICE.staging._spare.values() for p in kept}


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What a device is asked for, in order."""
    seen = list[str]()

    def noted(name: str) -> None:
        own = getattr(DEVICE, name)
        monkeypatch.setattr(DEVICE, name, lambda *args: seen.append(name) or own(*args))

    for name in ("send", "start", "fetch", "write", "read"):
        noted(name)
    return seen


# ---- what is copied -----------------------------------------------------------------------------


def test_all_inputs_go_at_once_and_all_results_come_back_so(
    model: Any, here: Any, steps: list[str]
) -> None:
    for n in (3, 1, 5):
        steps.clear()
        given = [random(n, 6), random(4)]
        for made, wanted in zip(model.run(given), here.run(given), strict=True):
            np.testing.assert_allclose(made, wanted, rtol=1e-5)
        launches = steps.count("start")
        assert steps == ["send", *["start"] * launches, "fetch"] and launches


def test_runs_alike_use_the_same_memory(model: Any, here: Any) -> None:
    x, bias = random(3, 6), random(4)
    first = model(x, bias)
    kept = [array.copy() for array in first]
    before = pieces()
    for _ in range(3):
        x = random(3, 6)
        for made, wanted in zip(model(x, bias), here(x, bias), strict=True):
            np.testing.assert_allclose(made, wanted, rtol=1e-5)
    assert pieces() == before
    for array, copy in zip(first, kept, strict=True):
        np.testing.assert_array_equal(array, copy, "results are the caller's")


def test_runs_alike_take_no_memory(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    x, bias = random(2, 6), random(4)
    model(x, bias)
    monkeypatch.setattr(DEVICE, "take", no_memory)
    model(x + 1, bias)


def test_a_model_says_what_it_has_copied(model: Any) -> None:
    x, bias, y = random(3, 6), random(4), np.zeros((3, 4), np.float32)
    model(x, bias)
    assert model.copied == ({"x": 72, "bias": 16}, {"relu": 48, "softmax": 48})
    model(on_device(x), bias)
    assert model.copied == ({"bias": 16}, {})
    model.run([on_device(x), on_device(bias)], out={"softmax": y})
    assert model.copied == ({}, {"softmax": 48})
    assert str(model.copied) == "softmax (48 bytes) back"
    model(on_device(x), on_device(bias))
    assert str(model.copied) == "nothing"


def test_models_of_processors_copy_nothing(here: Any) -> None:
    here(random(3, 6), random(4))
    assert here.copied == ({}, {})


def test_results_that_the_caller_has_arrays_for(model: Any, here: Any) -> None:
    """Some on the device, some not, some that nobody asked for."""
    x, bias, there = random(3, 6), random(4), on_device(np.zeros((3, 4), np.float32))
    wanted, own = here.run([x, bias]), np.zeros((3, 4), np.float32)
    relu, softmax = model.run([x, bias], out=[there])
    for made in (relu, there.numpy()):
        np.testing.assert_allclose(made, wanted[0], rtol=1e-5)
    np.testing.assert_allclose(softmax, wanted[1], rtol=1e-5)
    relu, softmax = model.run([x, bias], out={"softmax": own})
    assert softmax is own
    np.testing.assert_allclose(relu, wanted[0], rtol=1e-5)
    np.testing.assert_allclose(own, wanted[1], rtol=1e-5)


@pytest.mark.parametrize("why", ["large", "no memory"])
def test_what_is_not_staged_is_copied_before(
    here: Any, steps: list[str], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if why == "large":
        monkeypatch.setattr(staging, "_MOST", 0)
    else:
        monkeypatch.setattr(DEVICE.staging, "_spare", {})
        monkeypatch.setattr(DEVICE, "pinned", no_memory)
    given, model = [random(3, 6), random(4)], tw.compile(graph(), "simt")
    steps.clear()
    for made, wanted in zip(model.run(given), here.run(given), strict=True):
        np.testing.assert_allclose(made, wanted, rtol=1e-5)
    assert steps.count("write") == 2 and steps.count("read") == 2 and "send" not in steps
    assert model.copied.inputs == {"x": 72, "bias": 16}


def no_memory(size: int) -> Array:
    raise MemoryError(size)


def test_timed_runs_copy_nothing(model: Any, steps: list[str]) -> None:
    model.time([random(3, 6), random(4)], repeat=1, min_repeat_ms=0.1, warmup=1)
    assert not {"send", "fetch"} & set(steps)


def test_profiles_show_copies(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    send = DEVICE.send

    def timed(to: int, source: int, size: int) -> None:
        DEVICE._times.append(LaunchTime(time.monotonic_ns(), 5000, Copied(TO_DEVICE, size)))
        send(to, source, size)

    monkeypatch.setattr(DEVICE, "send", timed)
    profile = model.profile([random(3, 6), random(4)], runs=3, warmup=1)
    (row,) = profile.copy_rows
    assert (row.name, row.calls, row.origins) == ("copy to the device", 1, ("x, bias",))
    assert row.seconds == pytest.approx(5e-6) and row.bytes == 1024
    assert "copy to the device: x, bias" in str(profile)
    assert len(profile.trace()["traceEvents"]) == len(profile.events) + 3


# ---- graphs -------------------------------------------------------------------------------------


def crossed(device: Any, size: int = 600) -> Any:
    made = Crossing(device, brings_back=True)
    made.sent([np.zeros(size, np.uint8)])
    made.fetched([((size,), np.dtype(np.uint8))])
    return made


def test_copies_are_parts_of_graphs(cuda: tuple[Any, Driver]) -> None:
    device, driver = cuda
    copies = crossed(device)
    (there, _, size), (back, _, _) = copies._sent.words, copies._fetched.words

    def run(_: Any) -> int:
        touched = Touched([(there, there + size)], [(back, back + size)])
        device.start(KERNEL, (1, 1, 1), (), touched)
        return 0

    entry = device.entered(run, "m")
    for _ in range(3):
        entry(b"words", copies)
    assert driver.graph == [("there", ()), ("kernel", (1,)), ("back", (2,))]
    assert driver.launched == [77, 77]
    entry(b"words", crossed(device))
    assert driver.launched == [77, 77], "other memory is another run"


def test_memory_is_used_again_when_the_device_was_waited_for(cuda: tuple[Any, Driver]) -> None:
    device, driver = cuda
    waited = list[int]()
    vars(driver)["cuStreamSynchronize"] = lambda *_: waited.append(1) or 0
    entry = device.entered(lambda _: 0, "m")

    def run() -> set[int]:
        """Where the memory of a run lies."""
        copies = crossed(device)
        driver.graph.clear()
        entry(b"words", copies)
        return {each.staged.address for each in (copies._sent, copies._fetched)}

    first, second = run(), run()
    assert not first & second and not waited, "the device may still read it"
    device.wait()
    assert run() | run() == first | second
    waited.clear()
    assert len(set().union(*(run() for _ in range(20)))) <= 8 and waited, "there is enough of it"
