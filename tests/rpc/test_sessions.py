"""What ends a session ends that session alone, and the client is told why."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import llvmlite.binding as llvm
import numpy as np
import pytest

import tilewright as tw
from tests.rpc.hosts import (
    Host,
    artifacts_below,
    classifier,
    data,
    files_below,
    started,
    stop,
    until,
)
from tilewright.graph import Builder
from tilewright.rpc.wire.values import Packed

_CODE = """
@"{name}.profile" = global [3 x i64] zeroinitializer
define i64 @"{name}.workspace"(ptr %words) {{ ret i64 0 }}
define i32 @"{name}.entry"(ptr %words) {{
  {body}
}}
"""
#: What native code may do to the process it is in.
_CRASH = "store volatile i32 1, ptr null\n  ret i32 0"
_TRAP = "call void @llvm.trap()\n  unreachable"
_LOOP = "br label %again\nagain:\n  br label %again"


def _object(name: str, body: str) -> bytes:
    """An object file in the place of a model's host program."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    declared = "declare void @llvm.trap()\n" if "trap" in body else ""
    module = llvm.parse_assembly(declared + _CODE.format(name=name, body=body))
    machine = llvm.Target.from_default_triple().create_target_machine(
        reloc="pic", codemodel="small"
    )
    return machine.emit_object(module)


def _misbehave(there: tw.rpc.RemoteModel, model: tw.Model, body: str) -> None:
    """Have the session run such code."""
    code = _object(model.program.name, body)
    packed = Packed()
    fields = {"inputs": packed.named([data()]), "runs": 1, "warmup": 0, "words": 12}
    packed.tree(np.frombuffer(code, np.uint8))
    there._call("record", fields, packed)


@pytest.mark.parametrize(
    ("body", "reason"),
    [(_CRASH, "SIGSEGV"), (_TRAP, "SIG(ILL|TRAP)")],
    ids=["crash", "trap"],
)
def test_native_faults_end_one_session(
    body: str, reason: str, server: Host, key: Path, model: tw.Model
) -> None:
    connect = tw.rpc.connect
    with connect(server.address, key) as other, connect(server.address, key) as device:
        beside, there = other.load(model), device.load(model)
        with pytest.raises(tw.rpc.DeviceLostError, match=reason) as lost:
            _misbehave(there, model, body)
        assert lost.value.kind == "crash"
        assert (beside(data()) == model(data())).all()
        # The same objects go on, in a session of their own.
        assert (there(data()) == model(data())).all()
        assert there.profile([data()]).rows


def test_calls_that_do_not_end_are_ended(key: Path, model: tw.Model, tmp_path: Path) -> None:
    with started("server", key, tmp_path / "f", "--call-seconds", "4") as host:
        with tw.rpc.connect(host.address, key) as device:
            there = device.load(model)
            with pytest.raises(tw.rpc.DeviceLostError, match="longer than the 4 s") as lost:
                _misbehave(there, model, _LOOP)
            assert lost.value.kind == "time-out"
            assert (there(data()) == model(data())).all()
        until(lambda: not artifacts_below(host.folder))


def test_a_session_that_is_killed_is_reported(server: Host, key: Path, model: tw.Model) -> None:
    with tw.rpc.connect(server.address, key) as device:
        there = device.load(model)
        for pid in server.sessions():
            stop(pid)
        with pytest.raises(tw.rpc.DeviceLostError, match="SIGKILL: somebody killed it") as lost:
            there(data())
        assert lost.value.kind == "killed"
        assert (there(data()) == model(data())).all()


@pytest.mark.parametrize("killed", [True, False], ids=["killed", "hung"])
def test_a_process_that_fails_at_the_handover_gives_way(
    killed: bool, key: Path, model: tw.Model, tmp_path: Path
) -> None:
    """It waits for a client, and does no more when it is handed one: another gets it."""
    with started("server", key, tmp_path / "f") as host:
        (waiting,) = until(lambda: host.sessions())
        # Once it has said that it is ready, so that the server relies on it.
        until(lambda: _rests(waiting))
        os.kill(waiting, signal.SIGSTOP)
        if killed:
            threading.Timer(1.0, stop, (waiting,)).start()
        with tw.rpc.connect(host.address, key) as device:
            assert (device.load(model)(data()) == model(data())).all()
            assert waiting not in host.sessions()
        assert len(until(lambda: len(found := host.sessions()) == 1 and found)) == 1


def _rests(pid: int) -> bool:
    """Whether a process has started, and now waits for something."""

    def seen() -> tuple[str, list[str]]:
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return words[0], words[11:13]

    before = seen()
    time.sleep(0.5)
    return before == seen() and before[0] == "S" and before[1] != ["0", "0"]


def test_too_much_memory_is_an_error_of_the_call(key: Path, tmp_path: Path) -> None:
    b = Builder()
    b.output(b.input("x", "f32", ("n", 1)) + np.zeros((1, 1 << 16), np.float32))
    with (
        started("server", key, tmp_path / "f", "--memory", "600M") as host,
        tw.rpc.connect(host.address, key) as device,
    ):
        there = device.load(tw.compile(b.build(), threads=1), threads=1)
        with pytest.raises(tw.UserError, match=r"no memory|not enough memory"):
            there(np.zeros((1 << 13, 1), np.float32))
        assert (there(np.ones((2, 1), np.float32)) == 1).all()


def test_arrays_and_models_are_limited(key: Path, model: tw.Model, tmp_path: Path) -> None:
    options = ("--message", "1000", "--room", "100K")
    with (
        started("server", key, tmp_path / "f", *options) as host,
        tw.rpc.connect(host.address, key) as device,
    ):
        there = device.load(model)
        with pytest.raises(tw.UserError, match="too large for this device"):
            there(data(100))
        assert (there(data()) == model(data())).all()
        with pytest.raises(tw.UserError, match="too large for this device"):
            device.load(_large(tmp_path))
        with pytest.raises(tw.UserError, match="no room for the model"):
            for _ in range(10):
                kept = [device.load(model) for _ in range(3)]
                assert len(kept) == 3
        assert (there(data()) == model(data())).all()


def _large(folder: Path) -> Path:
    (folder / "large.twm").write_bytes(os.urandom(200_000))
    return folder / "large.twm"


def test_sessions_are_limited(key: Path, tmp_path: Path) -> None:
    with (
        started("server", key, tmp_path / "f") as host,
        tw.rpc.connect(host.address, key) as device,
    ):
        with pytest.raises(tw.UserError, match="all of its 1 sessions are in use"):
            tw.rpc.connect(host.address, key)
        device.close()
        with tw.rpc.connect(host.address, key) as another:
            another.ping()


def test_a_client_that_does_nothing_loses_its_session(key: Path, tmp_path: Path) -> None:
    with (
        started("server", key, tmp_path / "f", "--idle-seconds", "0.5") as host,
        tw.rpc.connect(host.address, key) as device,
    ):
        time.sleep(1.5)
        with pytest.raises(tw.rpc.DeviceLostError, match=r"nothing to do for 0.5 s"):
            device.ping()


_CLIENT = """
import sys, numpy, tilewright as tw
device = tw.rpc.connect(sys.argv[1], sys.argv[2])
model = device.load(sys.argv[3])
print("ready", flush=True)
while True:
    model.benchmark([numpy.zeros((3, 16), numpy.float32)], seconds=60)
"""


def test_a_killed_client_frees_the_device(key: Path, model: tw.Model, tmp_path: Path) -> None:
    model.save(tmp_path / "m.twm")
    with started("server", key, tmp_path / "f") as host:
        words = [sys.executable, "-c", _CLIENT, host.address, str(key), str(tmp_path / "m.twm")]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as client:
            assert client.stdout is not None and client.stdout.readline() == "ready\n"
            client.kill()
        # It was in the middle of a call of a minute.
        with tw.rpc.connect(host.address, key) as device:
            assert (device.load(model)(data()) == model(data())).all()


def test_a_long_call_gives_signs_of_life(server: Host, key: Path, model: tw.Model) -> None:
    from tilewright.rpc.wire import channel

    with tw.rpc.connect(server.address, key) as device:
        there = device.load(model)
        seen, receive = list[str](), channel.Channel.receive

        def noted(self: channel.Channel, patience: float):
            prefix, header = receive(self, patience)
            seen.append(prefix.kind.name)
            return prefix, header

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(channel.Channel, "receive", noted)
            there.benchmark([data()], seconds=3)
        assert seen[0] == "ALIVE" and seen[-1] == "REPLY"


def test_a_session_that_hangs_is_given_up(
    key: Path, model: tw.Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tilewright.rpc.wire.channel.PATIENCE_SECONDS", 1.0)
    monkeypatch.setattr("tilewright.rpc.wire.channel.Channel.answer.__defaults__", (1.0,))
    with (
        started("server", key, tmp_path / "f", "--sessions", "2") as host,
        tw.rpc.connect(host.address, key) as device,
    ):
        there = device.load(model)
        held = host.sessions()
        for pid in held:
            stop(pid, signal.SIGSTOP)
        try:
            with pytest.raises(tw.rpc.DeviceLostError, match="no sign of life"):
                there(data())
        finally:
            for pid in held:
                stop(pid, signal.SIGCONT)


def test_an_interrupted_call_leaves_no_answer_behind(
    server: Host, key: Path, model: tw.Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tilewright.rpc.wire.channel import Channel

    def interrupted(self: Channel, number: int, patience: float = 0):
        raise KeyboardInterrupt

    with tw.rpc.connect(server.address, key) as device:
        there = device.load(model)
        with monkeypatch.context() as patch:
            patch.setattr(Channel, "answer", interrupted)
            with pytest.raises(KeyboardInterrupt):
                there(data())
        assert (there(data(5)) == model(data(5))).all()


def test_a_killed_server_takes_its_sessions_along(
    key: Path, model: tw.Model, tmp_path: Path
) -> None:
    with started("server", key, tmp_path / "f") as host:
        device = tw.rpc.connect(host.address, key)
        there = device.load(model)
        sessions = host.sessions()
        host.kill()
        until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in sessions))
        with pytest.raises(tw.rpc.DeviceLostError):
            there(data())
        with pytest.raises(tw.rpc.UnreachableError):
            there(data())
        assert files_below(tmp_path / "f")
    # What it left is removed by the next one, which the same client goes on with.
    with started("server", key, tmp_path / "f", "--port", str(host.port)):
        assert (there(data()) == model(data())).all()
        assert len(list((tmp_path / "f").glob("server-*"))) == 1
    assert not list((tmp_path / "f").iterdir())


def test_nothing_is_written_elsewhere(key: Path, model: tw.Model, tmp_path: Path) -> None:
    """Not in the home, the working folder, or the cache of whoever runs the server."""
    places = {"HOME": tmp_path / "home", "XDG_CACHE_HOME": tmp_path / "cache"}
    for place in places.values():
        place.mkdir()
    env = {name: str(place) for name, place in places.items()}
    env |= {"TILEWRIGHT_CACHE_DIR": str(tmp_path / "cache"), "TMPDIR": str(tmp_path / "home")}
    with (
        started("server", key, tmp_path / "f", **env) as host,
        tw.rpc.connect(host.address, key) as device,
    ):
        there = device.load(model)
        there(data())
        there.profile([data()])
        written = [Path(os.readlink(p)) for p in Path(f"/proc/{host.sessions()[0]}/fd").iterdir()]
        files = [p for p in written if p.is_file() and os.access(p, os.W_OK)]
        assert all(p.is_relative_to(tmp_path / "f") for p in files)
        session = artifacts_below(tmp_path / "f")[0].parent
        assert [p.name for p in files_below(session)] == ["model-1.twm"]
        assert session.stat().st_mode & 0o077 == 0
    assert not [p for place in places.values() for p in place.rglob("*")]
    assert not list((tmp_path / "f").iterdir())


def test_memory_of_the_server_stays_flat(key: Path, tmp_path: Path) -> None:
    def memory() -> int:
        text = Path(f"/proc/{host.process.pid}/statm").read_text()
        return int(text.split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def knock(count: int) -> None:
        for k in range(count):
            with socket.create_connection(("127.0.0.1", host.port)) as sock:
                sock.sendall(os.urandom(k % 200))

    with started("server", key, tmp_path / "f") as host:
        knock(100)
        before, threads = memory(), len(os.listdir(f"/proc/{host.process.pid}/task"))
        knock(600)
        with tw.rpc.connect(host.address, key) as device:
            device.ping()
        assert memory() - before < 4 << 20
        until(lambda: len(os.listdir(f"/proc/{host.process.pid}/task")) <= threads + 8)


def test_other_classifiers_are_other_models(server: Host, key: Path, model: tw.Model) -> None:
    other = tw.compile(classifier(seed=5))
    with tw.rpc.connect(server.address, key) as device:
        one, two = device.load(model), device.load(other)
        assert (one(data()) == model(data())).all() and (two(data()) == other(data())).all()
