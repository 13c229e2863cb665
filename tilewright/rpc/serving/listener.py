"""Accepts connections, each with a thread for its authentication."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable

from tilewright.rpc.wire.errors import ProtocolError
from tilewright.rpc.wire.limits import OPENING_CONNECTIONS
from tilewright.support.errors import UserError


class Listener:
    """A listening socket; `admit` is called with each connection, in its own thread."""

    def __init__(self, host: str, port: int, admit: Callable[[socket.socket], None]) -> None:
        self._admit = admit
        self._opening: list[socket.socket] = []
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        try:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            self._socket = socket.create_server((host, port), family=family, backlog=128)
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise UserError(f"cannot listen on {host}:{port}", reason=reason) from None
        self._socket.settimeout(0.5)

    @property
    def port(self) -> int:
        return self._socket.getsockname()[1]

    @property
    def address(self) -> str:
        host, port = self._socket.getsockname()[:2]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def serve(self) -> None:
        """Accept connections until `stop`."""
        with self._socket:
            while not self._stopped.is_set():
                # Too many open files, or a client that has gone: ignore, and accept the next.
                with contextlib.suppress(OSError):
                    sock, _ = self._socket.accept()
                    self._take(sock)

    def stop(self) -> None:
        self._stopped.set()

    def _take(self, sock: socket.socket) -> None:
        with self._lock:
            self._opening.append(sock)
            oldest = self._opening[0] if len(self._opening) > OPENING_CONNECTIONS else None
        if oldest is not None:
            # Its thread sees the end of the connection and closes it.
            with contextlib.suppress(OSError):
                oldest.shutdown(socket.SHUT_RDWR)
        threading.Thread(target=self._handle, args=(sock,), daemon=True).start()

    def _handle(self, sock: socket.socket) -> None:
        with sock, contextlib.suppress(OSError, ProtocolError):
            try:
                self._admit(sock)
            finally:
                self.leave(sock)

    def leave(self, sock: socket.socket) -> None:
        """Stop counting an authenticated connection among the opening ones."""
        with self._lock:
            if sock in self._opening:
                self._opening.remove(sock)
