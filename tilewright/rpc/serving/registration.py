"""A server's registration with its tracker, which it maintains."""

from __future__ import annotations

import contextlib
import threading
from typing import Any, Final

from tilewright.rpc.client.link import Link
from tilewright.rpc.serving.leases import DEVICE_SECONDS
from tilewright.rpc.serving.server import Server
from tilewright.rpc.serving.tickets import Tickets
from tilewright.rpc.wire.channel import Channel
from tilewright.rpc.wire.errors import ProtocolError, error_from
from tilewright.rpc.wire.frames import Kind
from tilewright.support.errors import TilewrightError

_BEAT_SECONDS: Final = 1.0
_RETRY_SECONDS: Final = 1.0


class Registration:
    """Tells a tracker that a server exists, and which sessions it runs.

    Each beat has the complete state, so that a restarted tracker recovers it.
    """

    def __init__(self, server: Server, tracker: Link, host: str = "") -> None:
        self._server, self._tracker, self._host = server, tracker, host
        self._tickets = Tickets(tracker.key, tracker.address)
        self._running: set[str] = set()
        #: Ended sessions not yet reported to the tracker.
        self._over: set[str] = set()
        self._lock = threading.Lock()
        self._changed = threading.Event()
        self._stopped = False
        server.admit, server.begun, server.ended = self._tickets.why_not, self._begun, self._ended
        threading.Thread(target=self._keep, daemon=True, name="registration").start()

    def close(self) -> None:
        self._stopped = True
        self._changed.set()

    def _begun(self, ticket: bytes) -> None:
        with self._lock:
            self._running.add(ticket.hex())
        self._changed.set()

    def _ended(self, ticket: bytes) -> None:
        with self._lock:
            self._running.discard(ticket.hex())
            self._over.add(ticket.hex())
        self._changed.set()

    def _keep(self) -> None:
        while not self._stopped:
            with contextlib.suppress(OSError, TilewrightError, ValueError):
                channel, _ = self._tracker.open()
                try:
                    self._serve(channel)
                finally:
                    channel.close()
            self._changed.wait(_RETRY_SECONDS)

    def _serve(self, channel: Channel) -> None:
        server = self._server
        about = {
            "call": "register",
            "name": server.name,
            "host": self._host,
            "port": server.port,
            "target": server.target,
            "sessions": server.limits.sessions,
            "identity": self._tickets.identity.hex(),
        }
        self._say(channel, about)
        while not self._stopped:
            self._changed.wait(_BEAT_SECONDS)
            self._changed.clear()
            self._say(channel, {"call": "beat"})

    def _say(self, channel: Channel, header: dict[str, Any]) -> None:
        with self._lock:
            running, over = sorted(self._running), sorted(self._over)
        channel.send(Kind.REQUEST, 1, {**header, "running": running, "ended": over})
        prefix, answer = channel.answer(1, DEVICE_SECONDS)
        if prefix.kind is Kind.ERROR or prefix.body_bytes:
            error = error_from(answer)
            raise error if prefix.kind is Kind.ERROR else ProtocolError("a message is damaged")
        with self._lock:
            self._over.difference_update(over)
