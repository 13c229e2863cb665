"""What goes wrong while a model runs on a device: Ctrl-C, checks, several threads at once."""

from __future__ import annotations

import gc
import signal
import threading
import time
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.graph import Builder
from tilewright.graph import Module as Graph
from tilewright.insight.roof import roof_of
from tilewright.runtime import Launched, LaunchTime
from tilewright.simt.device import DEVICE
from tilewright.support.errors import UserError
from tilewright.target import Target

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(0)
WEIGHTS = RNG.standard_normal((6, 4)).astype(np.float32)


def random(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


def classifier() -> Graph:
    b = Builder()
    b.output(b.softmax(b.relu(b.matmul(b.input("x", "f32", ("n", 6)), WEIGHTS))))
    return b.build()


def table() -> Graph:
    b = Builder()
    b.output(b.take(b.input("table", "f32", (5,)), b.input("at", "i64", (3,)), axis=0))
    return b.build()


@pytest.fixture(scope="module")
def model() -> Any:
    return tw.compile(classifier(), "simt")


@pytest.fixture(scope="module")
def here() -> Any:
    return tw.compile(classifier())


# ---- Ctrl-C -------------------------------------------------------------------------------------


@pytest.mark.usefixtures("interruptible")
def test_a_run_ends_before_its_next_launch(
    model: Any, here: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    started, start = list[str](), DEVICE.start

    def pressed(kernel: Launched, *args: Any) -> None:
        started.append(kernel.entry)
        start(kernel, *args)
        signal.raise_signal(signal.SIGINT)

    x = random(3, 6)
    model(x)
    monkeypatch.setattr(DEVICE, "start", pressed)
    with pytest.raises(KeyboardInterrupt):
        model(x)
    assert len(started) == 1
    monkeypatch.undo()
    np.testing.assert_allclose(model(x), here(x), rtol=1e-5)


def test_a_handler_that_goes_on_ends_nothing(
    model: Any, here: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, start = list[int](), DEVICE.start

    def pressed(*args: Any) -> None:
        start(*args)
        signal.raise_signal(signal.SIGINT)

    before = signal.signal(signal.SIGINT, lambda number, _: seen.append(number))
    monkeypatch.setattr(DEVICE, "start", pressed)
    try:
        x = random(3, 6)
        np.testing.assert_allclose(model(x), here(x), rtol=1e-5)
    finally:
        signal.signal(signal.SIGINT, before)
    assert len(seen) >= 2


def test_what_is_collected_goes_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    gc.collect()
    before = set(DEVICE.kernels)
    b = Builder()
    x = b.softmax(b.input("x", "f32", (3, 6)))
    b.output(b.softmax(b.transpose(x, axes=(1, 0))))
    made = tw.compile(b.build(), "simt")
    made(random(3, 6))
    assert len(set(DEVICE.kernels) - before) > 1
    monkeypatch.setattr(DEVICE, "unmake", lambda _: signal.raise_signal(signal.SIGINT))
    monkeypatch.setattr("sys.unraisablehook", lambda _: None)
    del made
    gc.collect()
    assert set(DEVICE.kernels) <= before


# ---- several threads ----------------------------------------------------------------------------


def test_threads_and_models_on_one_device(model: Any, here: Any) -> None:
    other, wrong = tw.compile(table(), "simt"), list[object]()

    def classify(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for n in (1, 3, 2):
            x = rng.standard_normal((n, 6)).astype(np.float32)
            if not np.allclose(model(x), here(x), rtol=1e-5):
                wrong.append(x)

    def look_up(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for bad in (False, True, False):
            values, at = rng.standard_normal(5).astype(np.float32), rng.integers(0, 5, 3)
            at[1] += 5 * bad
            try:
                right = np.array_equal(other(values, at), values[at])
            except UserError:
                right = bad
            if not right:
                wrong.append(at)

    threads = [threading.Thread(target=w, args=(k,)) for k in range(3) for w in (classify, look_up)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_checks_are_told_to_those_whose_runs_they_are_of(model: Any) -> None:
    """Between such a run and the reading of its results, nobody else may look for failed checks."""
    there: Any = tw.compile(table(), "cuda -arch=sm_90a")
    assert not isinstance(DEVICE.answering(there.program.objects), nullcontext)
    assert isinstance(DEVICE.answering(model.program.objects), nullcontext)


# ---- times --------------------------------------------------------------------------------------


def test_profiles_have_the_times_of_the_device(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not those of the processor, which launches and waits."""
    start = DEVICE.start

    def timed(*args: Any) -> None:
        at = time.monotonic_ns()
        start(*args)
        DEVICE._times.append(LaunchTime(at, 5000))

    monkeypatch.setattr(DEVICE, "start", timed)
    profile = model.profile([random(3, 6)], runs=3, warmup=1)
    assert {e.end - e.start for e in profile.events} == {5000}
    assert not DEVICE._times


@pytest.mark.parametrize(
    ("precision", "rate"), [("float32", 67e12), ("float16 (products: …)", 990e12)]
)
def test_the_roof_is_that_of_the_gpu(precision: str, rate: float) -> None:
    roof = roof_of(Target.of("cuda -arch=sm_90a"), precision)
    assert (roof.flops, roof.memory) == (rate, 4.4e12)
