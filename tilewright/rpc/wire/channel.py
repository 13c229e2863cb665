"""Messages over an encrypted connection, one request at a time."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from tilewright.rpc.wire.errors import ProtocolError, error_from
from tilewright.rpc.wire.frames import PREFIX_BYTES, Kind, Prefix, packed, read_header, read_prefix
from tilewright.rpc.wire.limits import ALIVE_SECONDS, CHUNK_BYTES, PATIENCE_SECONDS

#: Called after each part of a body is sent, with the bytes so far and the total.
Progress = Callable[[int, int], None]
#: The raw bytes of a body, in order.
Parts = Sequence[memoryview]
#: Most bytes read ahead at once.
_AHEAD_BYTES: Final = 4096


class Channel:
    """One end of a connection; only one thread at a time may read, and one write."""

    def __init__(self, sock: ssl.SSLSocket, body_limit: int) -> None:
        self._socket = sock
        #: Most bytes of a message's body that are accepted.
        self.body_limit = body_limit
        #: Held while using the connection: OpenSSL's connections are not thread-safe.
        self.lock = threading.Lock()
        #: Unread bytes of the last message's body.
        self._left = 0
        #: Bytes read ahead: small messages take one read.
        self._ahead, self._room = memoryview(b""), memoryview(bytearray(_AHEAD_BYTES))
        self._patience: float | None = None

    @property
    def socket(self) -> ssl.SSLSocket:
        return self._socket

    # ---- writing --------------------------------------------------------------------------------

    def send(
        self,
        kind: Kind,
        number: int,
        header: dict[str, Any],
        parts: Parts = (),
        progress: Progress | None = None,
    ) -> None:
        """Send a message; small ones in one piece."""
        total = sum(p.nbytes for p in parts) if parts else 0
        head = packed(kind, number, header, total)
        self._wait_for(PATIENCE_SECONDS)
        if total <= CHUNK_BYTES // 8:
            self._socket.sendall(b"".join([head, *parts]) if parts else head)
        else:
            self._socket.sendall(head)
            self._send_chunks(parts, total, progress)
        if progress and total <= CHUNK_BYTES // 8:
            progress(total, total)

    def _send_chunks(self, parts: Parts, total: int, progress: Progress | None) -> None:
        sent = 0
        for part in parts:
            for start in range(0, part.nbytes, CHUNK_BYTES):
                chunk = part[start : start + CHUNK_BYTES]
                self._socket.sendall(chunk)
                sent += chunk.nbytes
                if progress:
                    progress(sent, total)

    # ---- reading --------------------------------------------------------------------------------

    def receive(self, patience: float) -> tuple[Prefix, dict[str, Any]]:
        """The next message without its body; waits up to `patience` seconds for it."""
        prefix = read_prefix(self._taken(PREFIX_BYTES, patience), self.body_limit)
        header = self._taken(prefix.header_bytes, PATIENCE_SECONDS)
        self._left = prefix.body_bytes
        return prefix, read_header(header)

    def read_body(self, parts: Parts) -> None:
        """Read the body of the last message into the caller's memory."""
        for part in parts:
            self._left -= part.nbytes
            self._read_into(part, PATIENCE_SECONDS)

    def body_chunks(self) -> Iterator[memoryview]:
        """The unread rest of the last message's body, in chunks.

        A chunk is valid until the next one is requested.
        """
        chunk = memoryview(bytearray(min(self._left, CHUNK_BYTES)))
        while self._left:
            part = chunk[: min(self._left, CHUNK_BYTES)]
            self.read_body([part])
            yield part

    def _taken(self, size: int, patience: float) -> bytes | bytearray:
        """Read `size` bytes, with `patience` for each part; further bytes are kept."""
        if size and not self._ahead:
            self._ahead = self._room[: self._received(self._room, patience)]
        if size <= len(self._ahead):
            found, self._ahead = bytes(self._ahead[:size]), self._ahead[size:]
            return found
        made = bytearray(size)
        self._read_into(memoryview(made), patience)
        return made

    def _read_into(self, view: memoryview, patience: float) -> None:
        """Fill a view, with `patience` for each part."""
        done = min(view.nbytes, len(self._ahead))
        view[:done] = self._ahead[:done]
        self._ahead = self._ahead[done:]
        while done < view.nbytes:
            done += self._received(view[done:], patience)

    def _received(self, view: memoryview, patience: float) -> int:
        """Receive bytes into a view; gives their number."""
        self._wait_for(patience)
        count = self._socket.recv_into(view)
        if not count:
            raise ConnectionResetError("the peer has closed the connection")
        return count

    def _wait_for(self, patience: float) -> None:
        """Set the socket's time-out if it changes."""
        if patience != self._patience:
            self._socket.settimeout(patience)
            self._patience = patience

    # ---- answers ---------------------------------------------------------------------------------

    def answer(self, number: int, patience: float = PATIENCE_SECONDS) -> tuple[Prefix, Any]:
        """The answer to a request, waiting while the peer sends signs of life."""
        while True:
            prefix, header = self.receive(patience)
            if prefix.kind is not Kind.ALIVE:
                break
            if prefix.body_bytes:
                raise ProtocolError("a message is damaged", reason="a sign of life has a body")
        if prefix.kind is Kind.ERROR and not prefix.number:
            # Refers to the connection, which has ended.
            raise ProtocolError(str(error_from(header)))
        if prefix.number != number or prefix.kind is Kind.REQUEST:
            reason = f"{prefix.kind.name} {prefix.number} came in place of the answer to {number}"
            raise ProtocolError("a message is out of order", reason=reason)
        return prefix, header

    def close(self) -> None:
        """End the connection, whatever state it is in."""
        for step in (lambda: self._socket.shutdown(socket.SHUT_RDWR), self._socket.close):
            try:
                step()
            except OSError:
                continue


class Heartbeat:
    """Sends signs of life on behalf of a thread that works on a request.

    It also detects that the peer, or the process at the other end of `watched`, has gone, and then
    calls `gone`: native code cannot be interrupted otherwise.
    """

    def __init__(self, channel: Channel, watched: socket.socket, gone: Callable[[], None]) -> None:
        self._channel, self._watched, self._gone = channel, watched, gone
        self._number, self._since = 0, 0.0
        self._is_over = False
        threading.Thread(target=self._beat, daemon=True, name="heartbeat").start()

    def begin(self, number: int) -> None:
        """Start for a request; until `rest`, the connection must be used with its lock held."""
        self._number, self._since = number, time.monotonic()

    def rest(self) -> None:
        """Stop after a request; called with the connection's lock held."""
        self._since = 0.0

    def end(self) -> None:
        """The session ends: ignore that the peer goes away."""
        self._is_over = True

    def _beat(self) -> None:
        try:
            while not self._have_gone():
                if self._is_due():
                    self._say()
        except (OSError, ValueError):
            pass
        if not self._is_over:
            self._gone()

    def _is_due(self) -> bool:
        return self._since > 0 and time.monotonic() - self._since >= ALIVE_SECONDS

    def _say(self) -> None:
        with self._channel.lock:
            if self._is_due():
                self._channel.send(Kind.ALIVE, self._number, {})
                self._since = time.monotonic()

    def _have_gone(self) -> bool:
        """Wait briefly; gives whether a peer has closed its end."""
        import select

        hung_up = select.POLLHUP | select.POLLERR | getattr(select, "POLLRDHUP", 0)
        poll = select.poll()
        poll.register(self._channel.socket.fileno(), hung_up)
        poll.register(self._watched.fileno(), hung_up)
        return any(events for _, events in poll.poll(500))


def keep_alive(sock: socket.socket) -> None:
    """Disable Nagle's algorithm, and detect a dead peer within seconds."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    seconds = {"TCP_KEEPIDLE": 5, "TCP_KEEPINTVL": 2, "TCP_KEEPCNT": 4, "TCP_USER_TIMEOUT": 15_000}
    for name, value in seconds.items():
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
