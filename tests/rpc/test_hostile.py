"""Those without the key get nothing, and damaged messages harm nobody but their sender."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
from tests.rpc.hosts import FLAT_BYTES, Host, files_below, resident, started, until
from tests.rpc.mutations import example_messages, mutations
from tilewright.rpc.client.link import Link
from tilewright.rpc.serving.calls import Calls
from tilewright.rpc.serving.fates import Ending
from tilewright.rpc.serving.session import _serve
from tilewright.rpc.wire import handshake
from tilewright.rpc.wire.channel import Channel, Heartbeat
from tilewright.rpc.wire.errors import ProtocolError
from tilewright.rpc.wire.frames import PREFIX_BYTES, Kind, packed
from tilewright.rpc.wire.handshake import Intent, Role
from tilewright.rpc.wire.keys import read_key
from tilewright.rpc.wire.limits import Limits
from tilewright.rpc.wire.tls import make_certificate, open_channel, welcome

#: Damaged messages of each kind; `make fuzz-rpc` sends more.
COUNT = int(os.environ.get("TILEWRIGHT_FUZZ_RPC", "1000"))


def _still_serves(host: Host, key: Path) -> None:
    with tw.rpc.connect(host.address, key) as device:
        device.ping()


def _waiting(host: Host) -> int:
    """The process that waits for a client, once all others have ended."""
    return until(lambda: len(found := host.sessions()) == 1 and found[0])


def _dial(host: Host) -> socket.socket:
    return socket.create_connection(("127.0.0.1", host.port), 10)


# ---- the opening --------------------------------------------------------------------------------


def test_another_key_opens_nothing(server: Host, key: Path) -> None:
    before = _waiting(server)
    with pytest.raises(tw.UserError, match="it has another key"):
        tw.rpc.connect(server.address, tw.rpc.make_key())
    assert _waiting(server) == before
    _still_serves(server, key)


@pytest.mark.parametrize("text", ["", "secret", "tilewright-rpc-key-1:00", "\0", "k" * 64])
def test_words_are_no_keys(text: str) -> None:
    with pytest.raises(tw.UserError, match="is no key for remote devices"):
        tw.rpc.connect("127.0.0.1:1", text)
    with pytest.raises(tw.UserError, match="is no key for remote devices"):
        tw.rpc.connect("127.0.0.1:1", text.encode())


@pytest.mark.parametrize("address", ["", "host", "host:", ":9190", "host:99999", "host:x"])
def test_addresses_are_checked(address: str, key: Path) -> None:
    with pytest.raises(tw.UserError, match="is no address"):
        tw.rpc.connect(address, key)


def test_nobody_there(key: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    with pytest.raises(tw.rpc.UnreachableError, match="cannot reach"):
        tw.rpc.connect(address, key)


def test_a_server_that_ends_at_the_opening_has_no_other_key(key: Path) -> None:
    """It is killed when it has the proof: nothing is known of its key, but that nobody is there."""
    listener = socket.create_server(("127.0.0.1", 0))

    def end() -> None:
        sock, _ = listener.accept()
        listener.close()
        with sock:
            sock.sendall(handshake._LISTENER.pack(b"TWRPC", 1, Role.SERVER, 0, os.urandom(32)))
            sock.recv(104, socket.MSG_WAITALL)

    address = f"127.0.0.1:{listener.getsockname()[1]}"
    thread = threading.Thread(target=end)
    thread.start()
    with pytest.raises(tw.rpc.UnreachableError, match="cannot reach"):
        Link(address, read_key(key)).open()
    thread.join()


def test_a_recorded_opening_is_of_no_use(server: Host, key: Path) -> None:
    secret = read_key(key)
    with _dial(server) as sock:
        recorded = _recording(sock, secret)
    for _ in range(20):
        with _dial(server) as sock:
            assert len(sock.recv(40, socket.MSG_WAITALL)) == 40
            sock.sendall(recorded)
            assert sock.recv(1) == b""
    _still_serves(server, key)


def _recording(sock: socket.socket, key: bytes) -> bytes:
    """What a client says to open a connection."""
    sent: list[bytes] = []

    class Recorded:
        def __getattr__(self, name: str):
            return getattr(sock, name)

        def sendall(self, data: bytes) -> None:
            sent.append(data)
            sock.sendall(data)

    handshake.authenticate(Recorded(), key, Intent.OPEN, handshake.NO_TICKET)  # type: ignore[arg-type]
    return sent[0]


def test_damaged_openings(server: Host, key: Path) -> None:
    before = _waiting(server)
    example = handshake._CLIENT.pack(b"TWRPC", 1, 1, 0, os.urandom(32), bytes(32), os.urandom(32))
    held, others = resident(server.process.pid), set(files_below(server.folder))
    for damaged in mutations(example, seed=1, count=COUNT):
        with _dial(server) as sock, contextlib.suppress(OSError):
            sock.sendall(damaged)
    assert _waiting(server) == before
    assert set(files_below(server.folder)) == others
    assert resident(server.process.pid) < held + FLAT_BYTES
    _still_serves(server, key)


def test_slow_and_half_open_clients_keep_nobody_out(key: Path, tmp_path: Path) -> None:
    with started("server", key, tmp_path / "f") as host, contextlib.ExitStack() as stack:
        for k in range(200):
            sock = stack.enter_context(_dial(host))
            if k % 2:
                sock.sendall(b"TW")
        _still_serves(host, key)


def test_a_client_that_stops_after_its_proof_loses_its_process(key: Path, tmp_path: Path) -> None:
    """It has the key, and holds the only session; nobody waits for it for long."""
    with started("server", key, tmp_path / "f") as host, _dial(host) as sock:
        handshake.authenticate(sock, read_key(key), Intent.OPEN, handshake.NO_TICKET)
        sock.sendall(b"\x16\x03\x01")
        end = time.monotonic() + 20
        while True:
            try:
                _still_serves(host, key)
                break
            except tw.UserError as error:
                assert "in use" in str(error) and time.monotonic() < end


def test_whoever_stands_between_is_noticed(server: Host, key: Path, tmp_path: Path) -> None:
    """The opening is passed on as it is; then each end sees a certificate of the one between."""
    secret, certificate = read_key(key), make_certificate(tmp_path)
    listener = socket.create_server(("127.0.0.1", 0))
    errors: list[BaseException] = []

    def between() -> None:
        client, _ = listener.accept()
        upstream = _dial(server)
        try:
            client.sendall(nonce := upstream.recv(40, socket.MSG_WAITALL))
            upstream.sendall(said := client.recv(104, socket.MSG_WAITALL))
            client.sendall(upstream.recv(3 + 32, socket.MSG_WAITALL))
            opening = handshake.Opening(
                Role.SERVER, Intent.OPEN, nonce[8:], said[8:40], said[40:72]
            )
            # It does not have the key, and passes the client's proof on.
            welcome(client, certificate, b"?" * 32, opening, {})
        except BaseException as error:
            errors.append(error)
        finally:
            client.close()
            upstream.close()

    thread = threading.Thread(target=between)
    thread.start()
    link = Link(f"127.0.0.1:{listener.getsockname()[1]}", secret)
    with pytest.raises(tw.UserError):
        link.open()
    thread.join()
    assert isinstance(errors[0], ProtocolError) and "proof is wrong" in str(errors[0])
    listener.close()
    _still_serves(server, key)


def test_a_proof_for_one_certificate_is_none_for_another(tmp_path: Path) -> None:
    """Even one between that has seen everything cannot use the proofs of either end."""
    key = os.urandom(32)
    for name in "ab":
        (tmp_path / name).mkdir()
    certificates = [make_certificate(tmp_path / name) for name in "ab"]
    opening = handshake.Opening(Role.SERVER, Intent.OPEN, bytes(32), bytes(32), bytes(32))

    def attempt(shown: Path, expected: Path) -> BaseException | None:
        ours, theirs = socket.socketpair()
        told: list[BaseException] = []

        def serve() -> None:
            # The proof is checked against another certificate than the one that is shown.
            with pytest.MonkeyPatch.context() as patch:
                from tilewright.rpc.wire import tls

                patch.setattr(tls, "server_context", lambda _: context)
                try:
                    welcome(theirs, expected, key, opening, {})
                except BaseException as error:
                    told.append(error)

        from tilewright.rpc.wire.tls import server_context

        context = server_context(shown)
        thread = threading.Thread(target=serve)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("tilewright.rpc.wire.tls.keep_alive", lambda _: None)
            thread.start()
            with contextlib.suppress(OSError, tw.UserError):
                open_channel(ours, key, opening, 0, {})
            thread.join()
        ours.close()
        return told[0] if told else None

    assert attempt(certificates[0], certificates[0]) is None
    assert "proof is wrong" in str(attempt(certificates[0], certificates[1]))


# ---- messages -----------------------------------------------------------------------------------


class _Plain:
    """A session without encryption, in a thread, which damaged messages are sent to quickly."""

    def __init__(self, folder: Path) -> None:
        limits = Limits(message_bytes=1 << 16, folder_bytes=1 << 16, idle_seconds=5.0)
        self.ours, theirs = socket.socketpair()
        self._control, watched = socket.socketpair()
        channel = Channel(theirs, 0)  # type: ignore[arg-type]
        heartbeat = Heartbeat(channel, watched, lambda: None)
        self.ending: Ending | None = None
        self._keep = watched

        def serve() -> None:
            self.ending = _serve(channel, Calls(folder, limits, None), limits, heartbeat)
            theirs.close()

        # Timers are for processes of their own.
        self.thread = threading.Thread(target=serve)

    def send(self, data: bytes) -> Ending | None:
        self.thread.start()
        with contextlib.suppress(OSError):
            self.ours.sendall(data)
            self.ours.shutdown(socket.SHUT_WR)
        self.ours.settimeout(10)
        answer = b""
        with contextlib.suppress(OSError):
            while part := self.ours.recv(1 << 16):
                answer += part
        self.thread.join(10)
        assert not self.thread.is_alive(), "it still waits"
        self.ours.close()
        self._control.close()
        self._keep.close()
        return self.ending


@pytest.fixture
def no_timers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("signal.setitimer", lambda *_: None)


def test_damaged_messages(model: tw.Model, tmp_path: Path, no_timers: None) -> None:
    """They end the session or get an error; no other exception, no file left, no hang."""
    messages = example_messages(model, tmp_path)
    folder = tmp_path / "session"
    folder.mkdir()
    assert _Plain(folder).send(messages["load"] + messages["run"]) is Ending.CLOSED
    for k, (name, message) in enumerate(sorted(messages.items())):
        for damaged in mutations(message, seed=k, count=COUNT // 8):
            before = messages["load"] if name != "load" else b""
            assert _Plain(folder).send(before + damaged) in (Ending.CLOSED, Ending.DAMAGED)
            for file in files_below(folder):
                file.unlink()


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (packed(Kind.REPLY, 1, {}), "only requests are answered"),
        (packed(Kind.ALIVE, 1, {}), "only requests are answered"),
        (packed(Kind.REQUEST, 1, {"call": "run", "model": 9}), "there is no model 9"),
        (packed(Kind.REQUEST, 1, {"call": "shell"}), "unknown call"),
        (packed(Kind.REQUEST, 1, {"call": "unload", "model": True}), "field model makes no sense"),
        (packed(Kind.REQUEST, 1, {"call": "ping"}, 1 << 40), "are allowed"),
        (
            b"\x01\0\0\0\0\0\0\x01\xff\xff\xff\xff\0\0\0\0\0\0\0\0",
            "its header has 4294967295 bytes",
        ),
        (b"GET / HTTP/1.1\r\n\r\n\r\n", "its first bytes are"),
        (
            packed(Kind.REQUEST, 1, {"call": "ping", "arrays": [["float32", [1 << 61, 8]]]}),
            "body has",
        ),
        (packed(Kind.REQUEST, 1, {"call": "ping", "arrays": [["object", [1]]]}), "unknown type"),
        (packed(Kind.REQUEST, 1, {"call": "ping", "arrays": [["float32x4", [0]]]}), "unknown type"),
        (packed(Kind.REQUEST, 1, {"call": "ping"})[:20] + b"[" * 15, "not JSON"),
    ],
    ids=str,
)
def test_what_the_protocol_does_not_allow(
    message: bytes, reason: str, tmp_path: Path, no_timers: None
) -> None:
    answers = _answers(message, tmp_path)
    assert reason in answers and "ProtocolError" in answers


def _answers(message: bytes, folder: Path) -> str:
    session, received = _Plain(folder), list[bytes]()
    recv = session.ours.recv

    class Noted:
        def __getattr__(self, name: str):
            return getattr(real, name)

        def recv(self, count: int) -> bytes:
            received.append(part := recv(count))
            return part

    real, session.ours = session.ours, Noted()  # type: ignore[assignment]
    assert session.send(message) is Ending.DAMAGED
    return b"".join(received).decode(errors="replace")


def test_damaged_messages_over_the_wire(server: Host, key: Path, model: tw.Model, tmp_path: Path):
    """The same with keys, encryption and processes, a few times."""
    messages = example_messages(model, tmp_path)
    link = Link(server.address, read_key(key))
    for damaged in mutations(messages["run"], seed=99, count=6):
        channel, _ = link.open()
        channel.socket.sendall(messages["load"] + damaged)
        channel.close()
    _still_serves(server, key)


def test_answers_of_a_hostile_server_are_checked(tmp_path: Path) -> None:
    """A client takes no memory for what its server only claims to send."""
    ours, theirs = socket.socketpair()
    channel = Channel(ours, 1 << 20)  # type: ignore[arg-type]
    theirs.sendall(packed(Kind.REPLY, 1, {}, 1 << 21)[:PREFIX_BYTES])
    with pytest.raises(ProtocolError, match="its body has 2097152 bytes"):
        channel.answer(1)
    for message, reason in [
        (packed(Kind.REPLY, 2, {}), "came in place of the answer to 1"),
        (packed(Kind.REQUEST, 1, {}), "came in place of the answer to 1"),
        (packed(Kind.ALIVE, 1, {}, 5), "sign of life has a body"),
        (packed(Kind.ERROR, 0, {"kind": "ProtocolError", "what": "no"}), "no"),
    ]:
        theirs.sendall(message)
        with pytest.raises(ProtocolError, match=reason):
            channel.answer(1)
    theirs.close()
    with pytest.raises(ConnectionResetError):
        channel.answer(1)
    ours.close()


def test_arrays_are_what_their_header_says(tmp_path: Path) -> None:
    from tilewright.rpc.wire.values import Packed, unpacked, unpacked_inputs

    packed_ = Packed()
    tree = packed_.named({"x": [np.float32(2.5), None, True, 3, -1.5, np.array(["a", "b"])]})
    found = unpacked_inputs(tree, packed_.arrays)["x"]
    assert found[0] == np.float32(2.5) and found[1:5] == [None, True, 3, -1.5]
    assert found[5].tolist() == ["a", "b"]
    for wrong in [
        {"array": 1},
        {"array": -1},
        {"array": True},
        {"number": "x"},
        {"number": [1]},
        3,
    ]:
        with pytest.raises(ProtocolError):
            unpacked(wrong, packed_.arrays)
    for wrong in [{"strings": ["a"], "shape": [2]}, {"strings": [1], "shape": [1]}, {"x": 1}, "x"]:
        with pytest.raises(ProtocolError):
            unpacked(wrong, [])
