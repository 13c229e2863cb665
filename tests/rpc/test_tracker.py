"""A tracker, servers and clients as processes of their own, and what happens when one is killed."""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Generator
from pathlib import Path

import pytest

import tilewright as tw
from tests.rpc.hosts import FLAT_BYTES, Host, data, resident, started, stop, until
from tilewright.rpc.client.link import Link
from tilewright.rpc.wire.keys import read_key

#: Kills at random moments, and damaged messages of each kind; `make fuzz-rpc` does more.
KILLS = int(os.environ.get("TILEWRIGHT_KILL_RPC", "4"))
COUNT = int(os.environ.get("TILEWRIGHT_FUZZ_RPC", "1000")) // 40


@contextlib.contextmanager
def _farm(
    key: Path, folder: Path, count: int, *options: str
) -> Generator[tuple[Host, list[Host], tw.rpc.Tracker]]:
    """A tracker and servers called `pi`."""
    with contextlib.ExitStack() as stack:
        tracker = stack.enter_context(started("tracker", key, folder / "t", "--port", "0"))
        words = ("--tracker", tracker.address, "--name", "pi", *options)
        hosts = [
            stack.enter_context(started("server", key, folder / f"s{k}", *words))
            for k in range(count)
        ]
        asked = tw.rpc.connect(tracker.address, key)
        until(lambda: len(asked.devices()) == count)
        yield tracker, hosts, asked


def test_devices_are_listed_requested_and_given_back(
    key: Path, model: tw.Model, tmp_path: Path
) -> None:
    with _farm(key, tmp_path, 1) as (_, (host,), tracker):
        (listed,) = tracker.devices()
        assert listed["name"] == "pi" and listed["address"] == host.address
        assert tw.Target.of(listed["target"]) and listed["in_use"] == 0
        with tracker.request("pi") as device:
            assert (device.load(model)(data()) == model(data())).all()
            assert tracker.devices()[0]["in_use"] == 1
            with pytest.raises(tw.UserError, match="no device pi became free in time"):
                tracker.request("pi", timeout=0.3)
            with pytest.raises(tw.UserError, match="request it there"):
                tw.rpc.connect(host.address, key)
        until(lambda: tracker.devices()[0]["in_use"] == 0)
        with pytest.raises(tw.UserError, match="given back"):
            device.ping()
        with pytest.raises(tw.UserError, match="no device jetson"):
            tracker.request("jetson", timeout=0)


def test_requests_wait_in_order_of_priority(key: Path, tmp_path: Path) -> None:
    with _farm(key, tmp_path, 1) as (_, _, tracker):
        order: list[str] = []

        def wait(name: str, priority: int) -> None:
            with tracker.request("pi", priority=priority, client=name):
                order.append(name)

        with tracker.request("pi"):
            threads = list[threading.Thread]()
            for k, (name, priority) in enumerate([("low", -1), ("plain", 0), ("high", 3)]):
                threads.append(threading.Thread(target=wait, args=(name, priority)))
                threads[-1].start()
                until(lambda k=k: tracker.devices()[0]["waiting"] == k + 1)
        for thread in threads:
            thread.join(60)
        assert order == ["high", "plain", "low"]


def test_a_device_that_is_killed_is_noticed(key: Path, model: tw.Model, tmp_path: Path) -> None:
    with _farm(key, tmp_path, 2) as (_, hosts, tracker), tracker.request("pi") as device:
        there = device.load(model)
        victim = next(h for h in hosts if h.address == device.address)
        sessions = victim.sessions()
        victim.kill()
        until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in sessions))
        with pytest.raises(tw.rpc.DeviceLostError):
            there(data())
        # The next call has the tracker give it the other one.
        assert (there(data()) == model(data())).all()
        assert device.address != victim.address
        until(lambda: len(tracker.devices()) == 1, 10)


def test_a_tracker_that_is_killed_comes_back(key: Path, model: tw.Model, tmp_path: Path) -> None:
    with _farm(key, tmp_path, 1) as (host, _, tracker):
        device = tracker.request("pi")
        there = device.load(model)
        host.kill()
        # Whoever has a device keeps it.
        assert (there(data()) == model(data())).all()
        with pytest.raises(tw.rpc.UnreachableError):
            tracker.devices()
        with started("tracker", key, tmp_path / "t", "--port", str(host.port)):
            until(lambda: [d["in_use"] for d in tracker.devices()] == [1])
            waiting = threading.Thread(target=device.close)
            threading.Timer(0.5, waiting.start).start()
            with tracker.request("pi", timeout=30) as another:
                assert (another.load(model)(data()) == model(data())).all()


def test_pools_spread_work_and_do_lost_work_again(
    key: Path, model: tw.Model, tmp_path: Path
) -> None:
    with _farm(key, tmp_path, 2) as (_, hosts, tracker):
        pool, used, killed = tracker.pool("pi"), set[str](), list[int]()
        assert pool.size == 2

        def work(device: tw.rpc.Device, n: int) -> float:
            used.add(device.address)
            if n == 5 and not killed:
                victim = next(h for h in hosts if h.address == device.address)
                killed.extend(victim.sessions())
                for pid in killed:
                    stop(pid)
            time.sleep(0.05)
            return float(device.load(model)(data(n)).sum())

        found = pool.map(work, range(1, 21))
        assert killed and len(used) == 2
        assert found == [float(model(data(n)).sum()) for n in range(1, 21)]
        with pytest.raises(ZeroDivisionError):
            pool.map(lambda device, n: 1 / n, [1, 0, 2])
        assert pool.map(lambda device, n: n, []) == []


def test_work_goes_on_whoever_is_killed(key: Path, model: tw.Model, tmp_path: Path) -> None:
    """Sessions, servers, the tracker and clients are killed at random moments while others work."""
    rng = random.Random(7)
    model.save(tmp_path / "m.twm")
    with contextlib.ExitStack() as stack:
        tracker = stack.enter_context(started("tracker", key, tmp_path / "t", "--port", "0"))
        words = ("--tracker", tracker.address, "--name", "pi")
        place = iter(range(1000))

        def another() -> Host:
            folder = tmp_path / f"s{next(place)}"
            return stack.enter_context(started("server", key, folder, *words))

        hosts = [another(), another()]
        asked = tw.rpc.Tracker(Link(tracker.address, read_key(key)))
        expected, done, stopped = model(data()), [0, 0], threading.Event()

        def client(k: int) -> None:
            while not stopped.is_set():
                with (
                    contextlib.suppress(tw.rpc.DeviceLostError, tw.rpc.UnreachableError),
                    asked.request("pi", timeout=60, client=f"c{k}") as device,
                ):
                    for _ in range(3):
                        assert (device.load(model)(data()) == expected).all()
                        done[k] += 1

        # Should the test fail, they have nobody to ask, and end with it.
        stack.callback(stopped.set)
        clients = [threading.Thread(target=client, args=(k,), daemon=True) for k in range(2)]
        for thread in clients:
            thread.start()
        for _ in range(KILLS):
            time.sleep(rng.uniform(0.1, 1.0))
            which = rng.choice(("session", "server", "tracker", "client"))
            if which == "client":
                _killed_client(tracker, key, tmp_path)
            elif which == "tracker":
                tracker.kill()
                options = ("--port", str(tracker.port))
                tracker = stack.enter_context(started("tracker", key, tmp_path / "t", *options))
            elif which == "server":
                hosts.pop(rng.randrange(2)).kill()
                hosts.append(another())
            else:
                for pid in rng.choice(hosts).sessions():
                    stop(pid)
            before = list(done)
            until(lambda b=before: all(x > y for x, y in zip(done, b, strict=True)), 60)
        stopped.set()
        for thread in clients:
            thread.join(60)
            assert not thread.is_alive()


_CLIENT = """
import sys, numpy, tilewright as tw
with tw.rpc.connect(sys.argv[1], sys.argv[2]).request("pi", timeout=60) as device:
    model = device.load(sys.argv[3])
    while True:
        model(numpy.ones((3, 16), numpy.float32))
        print("works", flush=True)
"""


def _killed_client(tracker: Host, key: Path, folder: Path) -> None:
    """A client that is killed while it works on a device, which others then get."""
    words = [sys.executable, "-c", _CLIENT, tracker.address, str(key), str(folder / "m.twm")]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "works\n"
        process.kill()


def test_damaged_messages_to_a_tracker(key: Path, tmp_path: Path) -> None:
    from tests.rpc.mutations import mutations
    from tilewright.rpc.wire.frames import Kind, packed

    calls = [
        {"call": "devices"},
        {"call": "request", "name": "pi", "priority": 0, "client": "", "seconds": 0},
        {
            "call": "register",
            "name": "pi",
            "host": "",
            "port": 1,
            "target": "llvm",
            "sessions": 1,
            "identity": "00" * 16,
            "running": [],
        },
        {"call": "beat", "running": [], "ended": ["00"]},
    ]
    with started("tracker", key, tmp_path / "t", "--port", "0") as host:
        link = Link(host.address, read_key(key))
        link.open()[0].close()
        held = resident(host.process.pid)
        for k, call in enumerate(calls):
            for damaged in mutations(packed(Kind.REQUEST, 1, call), seed=k, count=COUNT):
                channel, _ = link.open()
                with contextlib.suppress(OSError):
                    channel.socket.sendall(damaged)
                channel.close()
        tracker = tw.rpc.connect(host.address, key)
        until(lambda: tracker.devices() == [])
        assert resident(host.process.pid) < held + FLAT_BYTES
