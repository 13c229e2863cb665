"""The server in C, beside Python's client: the same protocol, without Python on the device."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.device_runtime.served import Served
from tests.rpc.hosts import started, until
from tests.test_compile import random, weights
from tilewright.graph import Builder
from tilewright.rpc import DeviceLostError, Link
from tilewright.rpc.wire.frames import Kind
from tilewright.rpc.wire.keys import read_key


def _graph() -> Any:
    b = Builder()
    b.output(b.relu(b.dense(b.input("x", "f32", ("n", 24)), weights(10, 24), weights(10))))
    return b.build()


def test_a_model_runs_there_as_if_it_were_here(served: Served) -> None:
    graph, x = _graph(), random(5, 24)
    with served.connect() as device:
        assert device.name == "dev"
        local = tw.compile(graph, target=device.target)
        model = device.load(local, threads=2)
        np.testing.assert_array_equal(model(x), local(x))
        np.testing.assert_array_equal(model.run({"x": x})[0], local(x))
        assert model.time([x], repeat=3, min_repeat_ms=1).median > 0
        assert len(model.benchmark([x], seconds=0.01).samples) >= 10
        (kernel,) = {event.name for event in model.profile([x]).events}
        assert kernel.startswith("dense")
        model.set_threads(1)
        with pytest.raises(tw.UserError, match=r"input x: float32\[n, 24\] was given as"):
            model(random(5, 25))
        np.testing.assert_array_equal(model(x), local(x))


def test_what_it_cannot_do_is_said(served: Served) -> None:
    with served.connect() as device:
        with pytest.raises(tw.UserError, match="make trials by calls of kernels"):
            device.call("trial", {})
        device.ping()
        with pytest.raises(tw.UserError, match="it is for "):
            other = "x86-64" if tw.Target.of("llvm").arch == "aarch64" else "cortex-a72"
            device.load(tw.compile(_graph(), f"llvm -mcpu={other}"))
        device.ping()


# ---- trackers -----------------------------------------------------------------------------------


@pytest.fixture
def tracked(program: Path, tmp_path: Path) -> Iterator[tuple[Served, Any]]:
    """A server that a tracker gives out, and the tracker."""
    tw.rpc.write_key(tmp_path / "key")
    with started("tracker", tmp_path / "key", tmp_path / "t", "--port", "0") as tracker:
        made = Served(program, tmp_path, "--tracker", tracker.address)
        try:
            found = tw.rpc.connect(tracker.address, tmp_path / "key")
            until(lambda: found.devices())
            yield made, found
        finally:
            assert made.stop() == 0


def _in_use(tracker: Any) -> int:
    return sum(device["in_use"] for device in tracker.devices())


def test_a_tracker_gives_it_out(tracked: tuple[Served, Any]) -> None:
    served, tracker = tracked
    (listed,) = tracker.devices()
    assert listed["name"] == "dev" and listed["address"] == served.address
    x = random(5, 24)
    for _ in range(2):
        with tracker.request("dev", timeout=20) as device:
            local = tw.compile(_graph(), target=device.target)
            np.testing.assert_array_equal(device.load(local)(x), local(x))
            until(lambda: _in_use(tracker) == 1)
        until(lambda: _in_use(tracker) == 0)
    with pytest.raises(tw.UserError, match=r"it is given out by the tracker at .*: request it"):
        served.connect()


def test_a_ticket_lets_one_client_in_once(tracked: tuple[Served, Any]) -> None:
    served, tracker = tracked
    link = Link(served.address, read_key(served.key))
    channel, _ = Link(tracker.address, read_key(served.key)).open()
    asked = {"call": "request", "name": "dev", "priority": 0, "seconds": 20.0, "client": "me"}
    channel.send(Kind.REQUEST, 1, asked)
    ticket = bytes.fromhex(channel.answer(1)[1]["ticket"])
    link.open(ticket)[0].close()
    with pytest.raises(tw.UserError, match="the ticket has been used"):
        link.open(ticket)
    with pytest.raises(tw.UserError, match="request it there"):
        link.open(bytes(31) + b"x")


def test_a_tracker_that_starts_again_knows_it(program: Path, tmp_path: Path) -> None:
    key = tmp_path / "key"
    tw.rpc.write_key(key)
    with contextlib.ExitStack() as stack:
        first = stack.enter_context(started("tracker", key, tmp_path / "t", "--port", "0"))
        made = Served(program, tmp_path, "--tracker", first.address)
        stack.callback(made.stop)
        with tw.rpc.connect(first.address, key).request("dev", timeout=20) as device:
            first.kill()
            port = str(first.port)
            second = stack.enter_context(started("tracker", key, tmp_path / "u", "--port", port))
            tracker = tw.rpc.connect(second.address, key)
            until(lambda: tracker.devices() and _in_use(tracker) == 1)
            device.ping()
        until(lambda: _in_use(tracker) == 0)


def test_an_address_that_is_none_is_refused(program: Path, tmp_path: Path) -> None:
    tw.rpc.write_key(tmp_path / "key")
    command = [str(program), "serve", "--key-file", str(tmp_path / "key"), "--tracker", "here"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20)
    assert done.returncode == 1 and "here is no address of a tracker" in done.stderr


# ---- clients ------------------------------------------------------------------------------------


def test_another_key_is_of_no_use(served: Served, tmp_path: Path) -> None:
    tw.rpc.write_key(tmp_path / "other")
    with pytest.raises(tw.UserError, match="it has another key"):
        tw.rpc.connect(served.address, key=tmp_path / "other")
    with served.connect() as device:
        device.ping()


def test_one_session_at_a_time(served: Served) -> None:
    with served.connect() as device:
        device.ping()
        with pytest.raises(tw.UserError, match="all of its 1 sessions are in use"):
            served.connect()
        device.ping()


def test_a_call_that_takes_too_long_ends_the_session(program: Path, tmp_path: Path) -> None:
    made = Served(program, tmp_path, "--call-seconds", "1")
    x = random(5, 24)
    try:
        with made.connect() as device:
            model = device.load(tw.compile(_graph(), target=device.target))
            with pytest.raises(DeviceLostError, match="a call took longer than the 1 s") as told:
                model.benchmark([x], seconds=20)
            assert told.value.kind == "time-out"
            assert model(x).shape == (5, 10)
    finally:
        made.stop()


def test_damaged_messages_and_slow_peers_leave_it_serving(served: Served) -> None:
    host, _, port = served.address.partition(":")
    for data in (b"", b"GET / HTTP/1.1\r\n\r\n" * 10, bytes(104), b"TWRPC\1\1\0" + bytes(96)):
        with socket.create_connection((host, int(port)), 5) as sock:
            sock.sendall(data)
            assert sock.recv(40, socket.MSG_WAITALL)[:7] == b"TWRPC\1\1"
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_WR)
                assert sock.recv(1) == b""
    with socket.create_connection((host, int(port)), 5), served.connect() as device:
        with pytest.raises(DeviceLostError, match="damaged messages") as told:
            device.call("run", {"model": 7})
        assert told.value.kind == "damaged"
        device.ping()
        assert device.is_open


def test_a_client_that_vanishes_gives_its_session_back(served: Served) -> None:
    device = served.connect()
    device._channel.socket.close()
    started = time.monotonic()
    with served.connect() as other:
        other.ping()
    assert time.monotonic() - started < 5
