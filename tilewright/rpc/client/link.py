"""How clients reach a listener: addresses, connections, and the fate of lost sessions."""

from __future__ import annotations

import contextlib
import getpass
import socket
from dataclasses import dataclass, field
from typing import Any, Final

from tilewright.rpc.wire.channel import Channel
from tilewright.rpc.wire.errors import TurnedAwayError, UnreachableError
from tilewright.rpc.wire.fates import Fate
from tilewright.rpc.wire.handshake import NO_TICKET, Intent, Opening, Role, authenticate
from tilewright.rpc.wire.limits import OPENING_SECONDS
from tilewright.rpc.wire.tls import open_channel
from tilewright.support.errors import UserError

#: Most bytes of arrays in an answer.
_ANSWER_BYTES: Final = 1 << 36


@dataclass(frozen=True)
class Link:
    """The address of a listener, and the shared key."""

    address: str
    key: bytes = field(repr=False)

    def role(self) -> Role:
        """Whether a server or a tracker listens there."""
        # The fate of a nonexistent session is a cheap question that both kinds answer.
        sock, opening, _ = self._authenticated(Intent.FATE, NO_TICKET)
        sock.close()
        return opening.role

    def open(self, ticket: bytes = NO_TICKET) -> tuple[Channel, dict[str, Any]]:
        """A new encrypted connection, and the listener's facts."""
        sock, opening, _ = self._authenticated(Intent.OPEN, ticket)
        try:
            return open_channel(sock, self.key, opening, _ANSWER_BYTES, {"client": user_name()})
        except (OSError, ValueError) as error:
            sock.close()
            raise self._unreachable(error) from None
        except BaseException:
            sock.close()
            raise

    def fate(self, session: str) -> Fate:
        """How a session has ended; "unknown" if that cannot be found out."""
        with contextlib.suppress(UserError, ValueError):
            sock, _, text = self._authenticated(Intent.FATE, bytes.fromhex(session))
            sock.close()
            return Fate.of_text(text)
        return Fate()

    def _authenticated(self, intent: Intent, ticket: bytes) -> tuple[socket.socket, Opening, str]:
        """A connection to a listener with the same key, and its text."""
        try:
            return self._attempt(intent, ticket)
        except TurnedAwayError:
            # It has another key, or has just ended: try once more, a new one may be there.
            return self._attempt(intent, ticket)

    def _attempt(self, intent: Intent, ticket: bytes) -> tuple[socket.socket, Opening, str]:
        sock = self._connected()
        try:
            return sock, *authenticate(sock, self.key, intent, ticket)
        except (OSError, ValueError) as error:
            sock.close()
            raise self._unreachable(error) from None
        except BaseException:
            sock.close()
            raise

    def _connected(self) -> socket.socket:
        try:
            return socket.create_connection(split_address(self.address), OPENING_SECONDS)
        except OSError as error:
            raise self._unreachable(error) from None

    def _unreachable(self, error: Exception) -> UnreachableError:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        remedy = "see that the server runs, and that its --host and --port are these"
        return UnreachableError(f"cannot reach {self.address}", reason=reason, remedy=remedy)


def split_address(address: str) -> tuple[str, int]:
    """Host and port of `host:port`."""
    host, colon, port = str(address).rpartition(":")
    if not colon or not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        remedy = "write host:port, such as 192.168.0.7:9190"
        raise UserError(f"{address!r} is no address", remedy=remedy)
    return host.removeprefix("[").removesuffix("]"), int(port)


def user_name() -> str:
    """The name of this client, by which its share of devices is counted."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError, ImportError):
        user = "unknown"
    return f"{user}@{socket.gethostname()}"[:200]
