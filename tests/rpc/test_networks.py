"""Two hosts in network namespaces, with delay, loss, and a line that is cut."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Generator
from pathlib import Path

import pytest

import tilewright as tw
from tests.rpc.hosts import TARGET, Host, artifacts_below, data, until


def _ip(*words: str) -> bool:
    return subprocess.run(["ip", *words], capture_output=True, check=False).returncode == 0


class Line:
    """Two namespaces and the line between them; the device is 10.99.0.1, the client 10.99.0.2."""

    def __init__(self, name: str) -> None:
        self.device, self.client, self._port = f"{name}d", f"{name}c", f"{name}v"

    def up(self) -> bool:
        made = all(_ip("netns", "add", space) for space in (self.device, self.client))
        end, other = f"{self._port}0", f"{self._port}1"
        made = made and _ip("link", "add", end, "netns", self.device, "type", "veth",
                            "peer", "name", other, "netns", self.client)  # fmt: skip
        for space, port, host in ((self.device, end, "1"), (self.client, other, "2")):
            made = made and _ip("-n", space, "addr", "add", f"10.99.0.{host}/24", "dev", port)
            made = made and _ip("-n", space, "link", "set", port, "up")
            made = made and _ip("-n", space, "link", "set", "lo", "up")
        return made

    def down(self) -> None:
        for space in (self.device, self.client):
            _ip("netns", "del", space)

    def cut(self, is_cut: bool) -> None:
        """Nothing is heard of the other side any more, not even that it has gone."""
        state = "down" if is_cut else "up"
        assert _ip("-n", self.client, "link", "set", f"{self._port}1", state)

    @contextlib.contextmanager
    def worsened(self, delay_ms: float, loss: float) -> Generator[None]:
        """Another line in the place of this one, which delays packets and loses some."""
        assert _ip("-n", self.client, "link", "del", f"{self._port}1")
        ends = [f"{self.device}:10.99.0.1", f"{self.client}:10.99.0.2"]
        words = [sys.executable, "-m", "tests.rpc.bad_line", *ends, str(delay_ms), str(loss)]
        with subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdin is not None and process.stdout is not None
            try:
                assert process.stdout.readline() == "up\n"
                yield
            finally:
                process.stdin.close()


@pytest.fixture
def line() -> Generator[Line]:
    if sys.platform != "linux" or os.getuid() or shutil.which("ip") is None:
        pytest.skip("network namespaces take Linux, root and the command ip")
    made = Line(f"tw{os.getpid() % 100000}")
    try:
        if not made.up():
            pytest.skip("this system has no network namespaces")
        yield made
    finally:
        made.down()


@contextlib.contextmanager
def _server(line: Line, key: Path, folder: Path, *options: str) -> Generator[subprocess.Popen[str]]:
    words = [
        "ip",
        "netns",
        "exec",
        line.device,
        sys.executable,
        "-m",
        "tilewright",
        "rpc",
        "server",
    ]
    words += ["--key-file", str(key), "--folder", str(folder), "--target", TARGET, *options]
    words += ["--host", "10.99.0.1", "--port", "9191"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "listening on 10.99.0.1:9191\n"
        try:
            yield process
        finally:
            process.terminate()


_CLIENT = """
import sys, time, numpy, tilewright as tw
device = tw.rpc.connect("10.99.0.1:9191", sys.argv[1])
local = tw.load(sys.argv[2])
model, x = device.load(sys.argv[2]), numpy.ones((500, 16), numpy.float32)
assert (model(x) == local(x)).all()
print("right", flush=True)
if len(sys.argv) > 3:
    begin = time.monotonic()
    try:
        model.benchmark([x], seconds=100)
    except tw.rpc.DeviceLostError as error:
        print("lost", time.monotonic() - begin < 60, flush=True)
    sys.stdin.readline()
    assert (model(x) == local(x)).all()
    print("right again", flush=True)
"""


def _client(line: Line, key: Path, artifact: Path, *words: str) -> subprocess.Popen[str]:
    command = ["ip", "netns", "exec", line.client, sys.executable, "-c", _CLIENT, str(key)]
    command += [str(artifact), *words]
    return subprocess.Popen(command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def test_delay_and_loss(line: Line, key: Path, model: tw.Model, tmp_path: Path) -> None:
    if not Path("/dev/net/tun").exists():
        pytest.skip("this system has no tunnels")
    model.save(tmp_path / "m.twm")
    with (
        line.worsened(delay_ms=20, loss=0.03),
        _server(line, key, tmp_path / "f"),
        _client(line, key, tmp_path / "m.twm") as client,
    ):
        out, _ = client.communicate(timeout=60)
        assert out == "right\n"


def test_a_line_that_is_cut(line: Line, key: Path, model: tw.Model, tmp_path: Path) -> None:
    """Both sides notice in seconds, and go on when it is whole again."""
    model.save(tmp_path / "m.twm")
    with (
        _server(line, key, tmp_path / "f"),
        _client(line, key, tmp_path / "m.twm", "cut") as client,
    ):
        assert client.stdin is not None and client.stdout is not None
        assert client.stdout.readline() == "right\n"
        time.sleep(3)
        line.cut(True)
        assert client.stdout.readline() == "lost True\n"
        until(lambda: not artifacts_below(tmp_path / "f"), 60)
        line.cut(False)
        client.stdin.write("\n")
        client.stdin.flush()
        assert client.stdout.readline() == "right again\n"


def test_bytes_come_in_any_portions(server: Host, key: Path, model: tw.Model) -> None:
    """A line that is slow, and cuts what it carries into small pieces."""
    listener = socket.create_server(("127.0.0.1", 0))
    rng = random.Random(3)

    def carry(source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while part := source.recv(rng.choice((1, 7, 100, 1000))):
                sink.sendall(part)
                if rng.random() < 0.05:
                    time.sleep(0.01)
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_WR)

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                device = socket.create_connection(("127.0.0.1", server.port))
                for ends in ((client, device), (device, client)):
                    threading.Thread(target=carry, args=ends, daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    with tw.rpc.connect(f"127.0.0.1:{listener.getsockname()[1]}", key) as device:
        there = device.load(model)
        assert (there(data(50)) == model(data(50))).all()
        assert there.profile([data()]).rows
    listener.close()
