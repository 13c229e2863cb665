"""The server in C, beside Python's client: the same protocol, without Python on the device."""

from __future__ import annotations

import contextlib
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.emulated.emulator import FETCHED
from tests.test_compile import random, weights
from tilewright.device_runtime import build_runtime
from tilewright.graph import Builder
from tilewright.rpc import DeviceLostError

#: The sources of mbedTLS, as `make emulators` fetches them.
MBEDTLS = FETCHED / "mbedtls"

pytestmark = [
    pytest.mark.skipif(not shutil.which("cc"), reason="there is no C compiler"),
    pytest.mark.skipif(
        not MBEDTLS.is_dir(), reason="there is no mbedTLS: `make emulators` gets it"
    ),
]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("server") / "tilewright-run"
    build_runtime(made, mbedtls=MBEDTLS, compiler=["cc"])
    return made


class Served:
    """A server that runs, and its key."""

    def __init__(self, program: Path, folder: Path, *words: str) -> None:
        self.key = folder / "key"
        tw.rpc.write_key(self.key)
        command = [str(program), "serve", "--key-file", str(self.key), "--name", "dev", *words]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.address = self.process.stdout.readline().split()[-1]

    def connect(self) -> Any:
        return tw.rpc.connect(self.address, key=self.key)

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(10)


@pytest.fixture
def served(program: Path, tmp_path: Path) -> Iterator[Served]:
    made = Served(program, tmp_path)
    yield made
    assert made.stop() == 0


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
        with pytest.raises(tw.UserError, match="kernels need a Python server"):
            device.call("measure", {})
        device.ping()
        with pytest.raises(tw.UserError, match="it is for "):
            other = "x86-64" if tw.Target.of("llvm").arch == "aarch64" else "cortex-a72"
            device.load(tw.compile(_graph(), f"llvm -mcpu={other}"))
        device.ping()


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
            with pytest.raises(DeviceLostError, match="a call took longer than the 1 s"):
                model.benchmark([x], seconds=20)
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
        with pytest.raises(DeviceLostError, match="damaged messages"):
            device.call("run", {"model": 7})
        device.ping()
        assert device.is_open


def test_a_client_that_vanishes_gives_its_session_back(served: Served) -> None:
    device = served.connect()
    device._channel.socket.close()
    started = time.monotonic()
    with served.connect() as other:
        other.ping()
    assert time.monotonic() - started < 5
