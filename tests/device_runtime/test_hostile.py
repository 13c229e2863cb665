"""Damaged messages to the server in C, every access of which to memory is checked."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import tilewright as tw
from tests.device_runtime.served import Served
from tests.rpc.hosts import classifier, data, files_below, resident, until
from tests.rpc.mutations import example_messages, mutations
from tilewright.rpc import Link
from tilewright.rpc.client.link import split_address
from tilewright.rpc.wire import handshake
from tilewright.rpc.wire.channel import Channel
from tilewright.rpc.wire.errors import RefusedError, UnreachableError
from tilewright.rpc.wire.keys import read_key

#: Damaged messages, and as many openings; `make fuzz-rpc` sends more.
COUNT = int(os.environ.get("TILEWRIGHT_FUZZ_RPC", "150"))
#: Clients at a time.
_CLIENTS = 4
#: Seconds to wait for an answer to a damaged message, which may never come.
_PATIENCE = 0.2


class _Checked(Served):
    """A server that writes what is wrong with its accesses to memory into files."""

    def __init__(self, program: Path, folder: Path) -> None:
        self.reports, self.files = folder / "reports", folder / "files"
        self.reports.mkdir()
        self.files.mkdir()
        checks = f"log_path={self.reports}/found:abort_on_error=1:detect_leaks=0"
        words = ("--sessions", str(2 * _CLIENTS), "--call-seconds", "3", "--message", "1000000")
        checked = {"ASAN_OPTIONS": checks, "UBSAN_OPTIONS": checks, "TMPDIR": str(self.files)}
        super().__init__(program, folder, *words, **checked)

    def require_health(self) -> None:
        found = [path.read_text(errors="replace") for path in self.reports.iterdir()]
        assert not found, found[0][:3000]
        model = tw.compile(classifier())
        with self.connect() as device:
            assert (device.load(model)(data()) == model(data())).all()
        until(lambda: not files_below(self.files))


@pytest.fixture
def checked(sanitized_server: Path, tmp_path: Path) -> Iterator[_Checked]:
    made = _Checked(sanitized_server, tmp_path)
    yield made
    assert made.stop() == 0


@pytest.mark.timeout(300 + COUNT)
def test_damaged_openings(checked: _Checked) -> None:
    example = handshake._CLIENT.pack(b"TWRPC", 1, 1, 0, os.urandom(32), bytes(32), os.urandom(32))
    before = resident(checked.process.pid)
    for damaged in mutations(example, seed=1, count=COUNT):
        with (
            contextlib.suppress(OSError),
            socket.create_connection(split_address(checked.address), 5) as sock,
        ):
            sock.sendall(damaged)
    checked.require_health()
    assert resident(checked.process.pid) < before + (4 << 20)


@pytest.mark.timeout(300 + COUNT)
def test_damaged_messages(checked: _Checked, tmp_path: Path) -> None:
    """They end the session or get an error; none reaches for memory that is not its own."""
    messages = example_messages(tw.compile(classifier()), tmp_path)
    link, share = Link(checked.address, read_key(checked.key)), -(-COUNT // len(messages))
    trials = [
        (messages["load"] if name != "load" else b"", damaged)
        for seed, (name, message) in enumerate(sorted(messages.items()))
        for damaged in mutations(message, seed, share)
    ]
    before = resident(checked.process.pid)
    with ThreadPoolExecutor(_CLIENTS) as pool:
        answered = sum(pool.map(lambda trial: _is_answered(link, *trial), trials))
    assert answered > len(trials) // 4
    checked.require_health()
    assert resident(checked.process.pid) < before + (4 << 20)


def _opened(link: Link) -> Channel:
    """A session, once there is room for it: others may still be at work on what they were sent."""
    end = time.monotonic() + 60
    while True:
        try:
            return link.open()[0]
        except (RefusedError, UnreachableError):
            if time.monotonic() > end:
                raise


def _is_answered(link: Link, before: bytes, damaged: bytes) -> bool:
    """Whether an answer came; a session that still waits for the rest of a message ends."""
    channel = _opened(link)
    try:
        if before:
            channel.socket.sendall(before)
            channel.answer(7)
        channel.socket.sendall(damaged)
        channel.socket.settimeout(_PATIENCE)
        return bool(channel.socket.recv(1 << 16))
    except OSError:
        return False
    finally:
        channel.close()
