"""A server: authenticates clients, and gives each a session in a separate process."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tilewright.rpc.serving.folders import Folders
from tilewright.rpc.serving.listener import Listener
from tilewright.rpc.serving.sessions import Sessions
from tilewright.rpc.wire.handshake import Intent, Opening, Role, Verdict, challenge, send_verdict
from tilewright.rpc.wire.keys import AnyKey, read_key
from tilewright.rpc.wire.limits import Limits
from tilewright.rpc.wire.tls import make_certificate

_TARGET = "from tilewright.target import Target; print(Target.of('llvm'))"


class Server:
    """Serves this machine to clients that have the key.

    `admit` gives the reason to refuse a ticket; by default every client with the key gets a
    session. `begun` and `ended` are called with the ticket of every session that begins or ends.
    """

    def __init__(
        self,
        key: AnyKey,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        name: str = "",
        limits: Limits | None = None,
        trusted: list[str] | None = None,
        folder: Path | None = None,
        target: str = "",
    ) -> None:
        self._key, self.limits = read_key(key), limits or Limits()
        self.name, self.target = name or socket.gethostname(), target or this_machine()
        self.admit: Callable[[bytes], str] = lambda ticket: ""
        self.begun: Callable[[bytes], None] = lambda ticket: None
        self.ended: Callable[[bytes], None] = lambda ticket: None
        self._folders = Folders(folder)
        try:
            settings: dict[str, Any] = {
                "key": self._key.hex(),
                "name": self.name,
                "target": self.target,
                "trusted": [os.path.abspath(path) for path in trusted] if trusted else None,
                "certificate": str(make_certificate(self._folders.path)),
            }
            self._listener = Listener(host, port, self._admit)
            self._sessions = Sessions(
                self._folders, self.limits, settings, lambda ticket: self.ended(ticket)
            )
        except BaseException:
            self._folders.close()
            raise

    @property
    def address(self) -> str:
        """The address it listens on, as `host:port`."""
        return self._listener.address

    @property
    def port(self) -> int:
        return self._listener.port

    def serve(self) -> None:
        """Serve until `stop`."""
        self._listener.serve()

    def stop(self) -> None:
        """Make `serve` return; for signal handlers and other threads."""
        self._listener.stop()

    def close(self) -> None:
        """End all sessions and remove all files."""
        self.stop()
        self._sessions.close()
        self._folders.close()

    # ---- clients --------------------------------------------------------------------------------

    def _admit(self, sock: socket.socket) -> None:
        opening = challenge(sock, Role.SERVER, self._key)
        if opening.intent is Intent.FATE:
            fate = self._sessions.fate(opening.ticket.hex())
            send_verdict(sock, self._key, opening, Verdict.GRANTED, fate.text)
            return
        if reason := self._refusal(opening):
            send_verdict(sock, self._key, opening, Verdict.REFUSED, reason)
            return
        self._begin(sock, opening)

    def _refusal(self, opening: Opening) -> str:
        """Why a client gets no session; empty if one has been reserved for it."""
        if reason := self.admit(opening.ticket):
            return reason
        if self._sessions.has_room():
            return ""
        return f"all of its {self.limits.sessions} sessions are in use"

    def _begin(self, sock: socket.socket, opening: Opening) -> None:
        def tell(is_ready: bool) -> None:
            verdict = Verdict.GRANTED if is_ready else Verdict.REFUSED
            reason = "" if is_ready else "no process for the session could be started"
            send_verdict(sock, self._key, opening, verdict, reason)

        self.begun(opening.ticket)
        self._sessions.begin(sock, opening, tell)


def this_machine() -> str:
    """The text of the target for this machine, determined in a separate process.

    That loads LLVM, where it is installed, and so memory that a server does not need.
    """
    words = [sys.executable, "-P", "-c", _TARGET]
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60)
    return done.stdout.strip()
