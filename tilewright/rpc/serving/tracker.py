"""A tracker: servers register with it, and clients request devices from it."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from tilewright.rpc.serving.folders import Folders
from tilewright.rpc.serving.leases import DEVICE_SECONDS, Entry, LeaseTable, Waiting
from tilewright.rpc.serving.listener import Listener
from tilewright.rpc.serving.tickets import make_ticket
from tilewright.rpc.wire.channel import Channel
from tilewright.rpc.wire.errors import ProtocolError, error_data
from tilewright.rpc.wire.frames import Kind
from tilewright.rpc.wire.handshake import Intent, Role, Verdict, challenge, send_verdict
from tilewright.rpc.wire.keys import AnyKey, read_key
from tilewright.rpc.wire.limits import ALIVE_SECONDS, PATIENCE_SECONDS
from tilewright.rpc.wire.requests import Request
from tilewright.rpc.wire.tls import make_certificate, welcome
from tilewright.support.errors import UserError

#: Most clients and servers connected at a time.
_MOST_CONNECTIONS: Final = 512
_MOST_SESSIONS: Final = 1024
_TICK_SECONDS: Final = 0.5
_LONGEST_WAIT: Final = 86_400.0


class TrackerServer:
    """Grants devices to clients."""

    def __init__(
        self, key: AnyKey, host: str = "127.0.0.1", port: int = 0, *, folder: Path | None = None
    ) -> None:
        self._key = read_key(key)
        self._folders = Folders(folder)
        try:
            self._certificate = make_certificate(self._folders.path)
            self._listener = Listener(host, port, self._admit)
        except BaseException:
            self._folders.close()
            raise
        self._leases = LeaseTable(time.monotonic())
        self._changed = threading.Condition()
        self._room = threading.Semaphore(_MOST_CONNECTIONS)
        self._stopped = threading.Event()

    @property
    def address(self) -> str:
        """The address it listens on, as `host:port`."""
        return self._listener.address

    def serve(self) -> None:
        """Serve until `stop`."""
        threading.Thread(target=self._tick, daemon=True).start()
        self._listener.serve()

    def stop(self) -> None:
        self._stopped.set()
        self._listener.stop()

    def close(self) -> None:
        self.stop()
        self._folders.close()

    # ---- connections ----------------------------------------------------------------------------

    def _admit(self, sock: socket.socket) -> None:
        opening = challenge(sock, Role.TRACKER, self._key)
        if opening.intent is Intent.FATE:
            send_verdict(sock, self._key, opening, Verdict.GRANTED, "")
            return
        if not self._room.acquire(blocking=False):
            send_verdict(
                sock, self._key, opening, Verdict.REFUSED, "too many are connected to the tracker"
            )
            return
        try:
            send_verdict(sock, self._key, opening, Verdict.GRANTED, "")
            host = sock.getpeername()[0]
            channel, about = welcome(sock, self._certificate, self._key, opening, {})
            self._listener.leave(sock)
            _Connection(self, channel, host, str(about.get("client", ""))[:200]).serve()
        finally:
            self._room.release()

    def _tick(self) -> None:
        while not self._stopped.wait(_TICK_SECONDS):
            with self.leases() as leases:
                leases.tick(time.monotonic())

    @contextlib.contextmanager
    def leases(self) -> Any:
        """Exclusive access to the lease table; afterwards all possible grants are made."""
        with self._changed:
            yield self._leases
            while found := self._leases.grantable():
                request, entry = found
                ticket = make_ticket(self._key, entry.identity).hex()
                self._leases.grant(request, entry, ticket, time.monotonic())
            self._changed.notify_all()

    def wait(self, request: Waiting, seconds: float) -> bool:
        """Wait for a request to be granted, with a time limit."""
        with self._changed:
            return self._changed.wait_for(lambda: request.granted is not None, seconds)


class _Connection:
    """An authenticated client or server."""

    def __init__(self, tracker: TrackerServer, channel: Channel, host: str, client: str) -> None:
        self._tracker, self._channel, self._host, self._client = tracker, channel, host, client
        #: The number of the device that registered over this connection.
        self._device: int | None = None
        self._calls: dict[str, Callable[[int, Request], dict[str, Any]]] = {
            "devices": self._devices,
            "request": self._request,
            "register": self._register,
            "beat": self._beat,
        }

    def serve(self) -> None:
        try:
            while True:
                patience = PATIENCE_SECONDS if self._device is None else DEVICE_SECONDS
                prefix, header = self._channel.receive(patience)
                self._answer(prefix.number, prefix.kind, header)
        except ProtocolError as error:
            with contextlib.suppress(OSError):
                self._channel.send(Kind.ERROR, 0, error_data(error))
        except OSError:
            pass
        finally:
            self._channel.close()
            if self._device is not None:
                with self._tracker.leases() as leases:
                    leases.remove(self._device)

    def _answer(self, number: int, kind: Kind, header: dict[str, Any]) -> None:
        call = self._calls.get(str(header.get("call")))
        if call is None or kind is not Kind.REQUEST:
            raise ProtocolError("a message is damaged", reason="it asks for an unknown call")
        try:
            self._channel.send(Kind.REPLY, number, call(number, Request(header, ())))
        except ProtocolError:
            raise
        except UserError as error:
            self._channel.send(Kind.ERROR, number, error_data(error))

    # ---- servers --------------------------------------------------------------------------------

    def _register(self, number: int, request: Request) -> dict[str, Any]:
        del number
        if self._device is not None:
            raise ProtocolError("a message is out of order", reason="it has registered before")
        slots = min(request.natural("sessions"), _MOST_SESSIONS)
        host = request.text("host") or self._host
        place = f"[{host}]" if ":" in host else host
        entry = Entry(
            request.text("name"),
            f"{place}:{request.natural('port')}",
            request.text("target"),
            slots,
            time.monotonic(),
            request.hexadecimal("identity"),
        )
        with self._tracker.leases() as leases:
            self._device = leases.register(entry)
            leases.beat(self._device, request.texts("running"), (), time.monotonic())
        return {}

    def _beat(self, number: int, request: Request) -> dict[str, Any]:
        del number
        with self._tracker.leases() as leases:
            device = -1 if self._device is None else self._device
            told = request.texts("running"), request.texts("ended")
            known = leases.beat(device, *told, time.monotonic())
        if not known:
            raise ProtocolError("a message is out of order", reason="this device is not registered")
        return {}

    # ---- clients --------------------------------------------------------------------------------

    def _devices(self, number: int, request: Request) -> dict[str, Any]:
        del number, request
        with self._tracker.leases() as leases:
            listed = [
                {
                    "name": e.name,
                    "address": e.address,
                    "target": e.target,
                    "sessions": e.slots,
                    "in_use": len(e.leases),
                    "waiting": sum(r.name == e.name for r in leases.waiting),
                }
                for e in leases.devices.values()
            ]
        return {"devices": listed}

    def _request(self, number: int, request: Request) -> dict[str, Any]:
        client = request.text("client") or self._client
        end = time.monotonic() + min(request.number("seconds"), _LONGEST_WAIT)
        name, priority = request.text("name"), request.integer("priority")
        with self._tracker.leases() as leases:
            wanted: Waiting = leases.want(name, client, priority)
        try:
            return self._granted(number, wanted, end)
        except BaseException:
            with self._tracker.leases() as leases:
                leases.cancel(wanted)
            raise

    def _granted(self, number: int, wanted: Waiting, end: float) -> dict[str, Any]:
        """The device for a request; sends signs of life while the client waits."""
        while not self._tracker.wait(wanted, min(ALIVE_SECONDS, max(0.0, end - time.monotonic()))):
            if time.monotonic() >= end:
                raise UserError(
                    f"no device {wanted.name} became free in time",
                    remedy="wait longer, or see which there are by `tilewright rpc list`",
                )
            if _has_gone(self._channel):
                raise ConnectionResetError("the client has gone")
            self._channel.send(Kind.ALIVE, number, {})
        assert wanted.granted is not None
        entry, ticket = wanted.granted
        return {"address": entry.address, "ticket": ticket}


def _has_gone(channel: Channel) -> bool:
    poll = select.poll()
    poll.register(channel.socket.fileno(), getattr(select, "POLLRDHUP", 0))
    return bool(poll.poll(0))
