"""Kernels are built here and measured on other machines, of which some fail."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.rpc.hosts import Host, started, until
from tests.tune.test_measuring import HOST, crashing, forever, packed, scale
from tilewright.graph import Builder, Module, PassContext
from tilewright.runtime import Measured, TrialTask
from tilewright.schedule import Recorded, Trace
from tilewright.tune import best_records, read_records
from tilewright.tune.in_place import InPlace, Schedulers
from tilewright.tune.in_turns import InTurns
from tilewright.tune.measuring.devices import OneDevice, PoolOfDevices
from tilewright.tune.measuring.job_queue import Job, JobQueue, StartedTask
from tilewright.tune.measuring.remote import RemoteMeasurer
from tilewright.tune.tasks import Task, key_of_kernel

pytest.importorskip("cryptography")


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("keys") / "k"
    tw.rpc.write_key(path)
    return path


@pytest.fixture(scope="module")
def server(key: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    with started("server", key, tmp_path_factory.mktemp("served")) as host:
        yield host


@pytest.fixture
def device(server: Host, key: Path) -> Iterator[tw.rpc.Device]:
    with tw.rpc.connect(server.address, key) as device:
        yield device


def network() -> Module:
    rng = np.random.default_rng(0)
    b = Builder()
    x = b.input("x", "f32", (24, 48))
    b.output(b.relu(b.matmul(x, rng.standard_normal((48, 80)).astype(np.float32))))
    return b.build()


def measured(measurer: RemoteMeasurer, code: bytes) -> Measured:
    ((_, found),) = measurer.measure([code], 2, early=False)
    return found


def test_a_model_is_tuned_on_a_device(device: tw.rpc.Device, tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    summary = tw.tune(network(), on=device, records=path, trials=3, budget=100, tuner="ga")
    records = [r for r in read_records(path) if r.kind == "trial"]
    assert summary.trials == len(records) == 3 and not summary.failures
    assert {r.target for r in records} == {device.target}
    assert all(r.ratio and r.seconds and r.reference for r in records)
    with tw.tune.apply_best(path):
        model = device.load(tw.compile(network(), device.target))
    x = np.ones((24, 48), np.float32)
    np.testing.assert_allclose(model.run([x])[0], tw.compile(network()).run([x])[0], rtol=1e-4)


def test_winners_must_win_inside_the_model_there(device: tw.rpc.Device) -> None:
    """Plain loops are slower than those by default."""

    def made(found: Schedulers) -> Any:
        with PassContext(schedulers=found):
            return tw.compile(network(), device.target)

    model: Any = tw.compile(network(), device.target)
    (key,) = {key_of_kernel(model, name) for name in model.kernels}
    plain_loops = {model.target.machine: {key: Recorded(Trace()).key}}
    inputs, on = {"x": np.ones((24, 48), np.float32)}, OneDevice(device)
    found = InPlace(model, InTurns(inputs, on), made).ratios(plain_loops)
    assert set(found) == {key} and found[key] > 1.5
    # So are whole variants of a model.
    beside = InTurns(inputs, on).beside(model, model, 3, early=False)
    assert beside.failure is None and not beside.wins(1.0)


def test_winners_that_lose_inside_the_model_there_are_none(
    server: Host, key: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    def ratios(self: InPlace, found: Schedulers) -> dict[str, float]:
        assert self.turns.devices is not None
        with self.turns.devices.borrowed() as borrowed:
            borrowed.ping()
        asked.append(found)
        return {t: 2.0 for tasks in found.values() for t in tasks}

    def wins(self: Measured, best: float) -> bool:
        return self.failure is None

    monkeypatch.setattr(InPlace, "ratios", ratios)
    monkeypatch.setattr(Measured, "wins", wins)
    monkeypatch.setattr(Measured, "is_promising", wins)
    monkeypatch.setattr(Measured, "ratio", property(lambda measured: 0.5))
    path = tmp_path / "r.jsonl"
    with tw.rpc.connect(server.address, key) as device:
        summary = tw.tune(network(), on=device, records=path, trials=1, budget=100, tuner="ga")
    assert len(asked) == 1 and summary.gain == 1.0
    assert not best_records(read_records(path))


def test_winners_of_a_pool_are_timed_inside_the_model(
    key: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    """Its one session is free again when the search is over."""
    asked, ratios = list[dict[str, float]](), InPlace.ratios

    def noted(self: InPlace, found: Schedulers) -> dict[str, float]:
        asked.append(ratios(self, found))
        return asked[-1]

    monkeypatch.setattr(InPlace, "ratios", noted)
    monkeypatch.setattr(Measured, "wins", lambda self, best: self.failure is None)
    monkeypatch.setattr(Measured, "is_promising", lambda self, best: self.failure is None)
    monkeypatch.setattr(Measured, "ratio", property(lambda measured: 0.5))
    with started("tracker", key, tmp_path / "t", "--port", "0") as tracker:
        options = ("--tracker", tracker.address, "--name", "board")
        with started("server", key, tmp_path / "a", *options):
            pool = tw.rpc.connect(tracker.address, key).pool("board")
            until(lambda: pool.size == 1)
            path = tmp_path / "r.jsonl"
            tw.tune(network(), on=pool, records=path, trials=1, budget=100, tuner="ga")
    assert [len(found) for found in asked] == [1]
    assert not [w for w in recwarn if "winners were not measured" in str(w.message)]


def test_what_a_candidate_does_costs_its_session(device: tw.rpc.Device) -> None:
    measurer = RemoteMeasurer(OneDevice(device), timeout=2.0)
    assert not measurer.begin(Task(scale(), HOST), packed(scale())).failure
    try:
        assert measured(measurer, packed(scale(2.5))).failure == "wrong answer"
        hung = measured(measurer, packed(forever))
        assert hung.failure == "time-out" and "a call took longer than" in hung.reason
        assert measured(measurer, crashing()).failure == "crash"
        assert measured(measurer, b"no kernel").failure == "error"
        assert measured(measurer, packed(scale(), "rules {}")).failure is None
    finally:
        measurer.close()


def test_a_default_that_does_not_run_is_said_so(device: tw.rpc.Device) -> None:
    measurer = RemoteMeasurer(OneDevice(device), timeout=2.0)
    assert measurer.begin(Task(scale(), HOST), packed(forever)[:-100]).failure
    measurer.close()


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        ({}, b"no kernel"),
        ({"rounds": 3, "memory": 0}, packed(scale())),
        ({"task": 9}, b"{}\n and a kernel"),
        ({"task": -1}, b"x"),
        ({"task": 1 << 40}, b"[" * 5000),
        ({"task": "all"}, b"\xff" * 40),
    ],
)
def test_messages_that_make_no_sense(
    device: tw.rpc.Device, asked: dict[str, Any], code: bytes
) -> None:
    assert device.trial(asked, code, 5.0).failure == "error"
    device.ping()


def test_requests_without_a_trial_end_the_session(device: tw.rpc.Device) -> None:
    for fields in ({"trial": 3}, {"trial": {}}, {"trial": {}, "within": "long"}):
        with pytest.raises(tw.rpc.DeviceLostError, match="it was sent damaged messages"):
            device.call("trial", fields)
    device.ping()


def test_a_device_that_goes_away_costs_nothing_but_time(key: Path, tmp_path: Path) -> None:
    """Two servers, of which one is killed in the middle."""
    with started("tracker", key, tmp_path / "t", "--port", "0") as tracker:
        options = ("--tracker", tracker.address, "--name", "board")
        with (
            started("server", key, tmp_path / "a", *options),
            started("server", key, tmp_path / "b", *options) as dying,
        ):
            pool = tw.rpc.connect(tracker.address, key).pool("board")
            until(lambda: pool.size == 2)
            path = tmp_path / "r.jsonl"
            killer = threading.Thread(target=_kill_when_busy, args=(dying, path))
            killer.start()
            summary = tw.tune(network(), on=pool, records=path, trials=24, budget=100, tuner="ga")
            killer.join()
    trials = [r for r in read_records(path) if r.kind == "trial"]
    assert summary.trials == len(trials) >= 8 and not summary.failures
    assert dying.process.poll() is not None


def _kill_when_busy(host: Host, records: Path) -> None:
    until(lambda: records.exists() and len(records.read_bytes().splitlines()) >= 2, 100)
    for pid in host.sessions():
        _stop(pid)
    host.kill()


def _stop(pid: int) -> None:
    from tests.rpc.hosts import stop

    stop(pid)


def test_without_devices_a_search_ends(server: Host, key: Path, tmp_path: Path) -> None:
    with started("server", key, tmp_path / "f") as host:
        device = tw.rpc.connect(host.address, key)
        measurer = RemoteMeasurer(OneDevice(device), patience=0.5)
        host.kill()
        for pid in host.sessions() if host.process.poll() is None else []:
            _stop(pid)
        with pytest.raises(tw.UserError, match="no device is there to measure on"):
            measurer.begin(Task(scale(), HOST), packed(scale()))
        measurer.close()


def test_pools_without_devices_are_refused(key: Path, tmp_path: Path) -> None:
    with started("tracker", key, tmp_path / "t", "--port", "0") as tracker:
        pool = tw.rpc.connect(tracker.address, key).pool("none")
        with pytest.raises(tw.UserError, match="no device is called none"):
            PoolOfDevices(pool)


# ---- what devices say, put together -------------------------------------------------------------

FINE, WRONG = Measured((0.5,)), Measured(failure="wrong answer", reason="it differs")
LOST = Measured(failure="lost", reason="it gives no sign of life")


class Told:
    """A queue with devices, and one job on it."""

    def __init__(self, *devices: str) -> None:
        self.queue, self.found = JobQueue(), list[Measured]()
        for device in devices:
            self.queue.arrive(device)
        task: Any = object.__new__(TrialTask)
        self.job = Job(StartedTask(task, b""), b"", 1, False, self.found.append)
        self.queue.put(self.job)

    def say(self, device: str, measured: Measured) -> None:
        job = self.queue.take(device)
        assert job is not None and job is self.job
        self.queue.settle(job, device, measured)


def test_one_device_is_believed() -> None:
    for measured in (FINE, WRONG):
        told = Told("a")
        told.say("a", measured)
        assert told.found == [measured]


def test_of_several_two_must_say_that_something_fails() -> None:
    told = Told("a", "b")
    told.say("a", WRONG)
    assert not told.found and told.queue.take("a") is None
    told.say("b", WRONG)
    assert told.found == [WRONG]


def test_a_device_that_is_proved_wrong_is_left_out() -> None:
    told = Told("a", "b")
    for count in range(3):
        assert not told.queue.left_out
        told.say("a", WRONG)
        told.say("b", FINE)
        assert told.found == [FINE] * (count + 1)
        told.job.failures.clear()
        told.queue.put(told.job)
    assert told.queue.left_out == {"a": "it said: it differs"}


def test_where_the_others_have_gone_the_one_is_believed() -> None:
    told = Told("a", "b")
    told.say("a", WRONG)
    told.queue.depart("b")
    assert told.queue.take("a") is None and told.found == [WRONG]


def test_what_devices_are_lost_over_goes_to_others_and_not_for_ever() -> None:
    told = Told("a", "b", "c")
    for device in "ab":
        told.say(device, LOST)
        assert not told.found
    told.say("c", FINE)
    assert told.found == [FINE]
    told = Told("a")
    for _ in range(3):
        told.say("a", LOST)
    assert told.found == [LOST]


def test_what_ends_every_process_has_crashed() -> None:
    told = Told("a")
    for _ in range(3):
        told.say("a", Measured(failure="killed", reason="out of memory"))
    assert [m.failure for m in told.found] == ["crash"]
