"""The opening of a connection: unencrypted, with nonces of both sides and a first proof.

    listener   "TWRPC", version, role, 0, 32 random bytes                          40 bytes
    client     "TWRPC", version, intent, 0, 32 random bytes, ticket, proof          104 bytes
    listener   verdict, length of a text, the text, proof                      up to 547 bytes

Nothing here is secret, and a listener spends next to nothing on clients without the key: processes
and TLS come after the proof. What follows (`tls.py`) is bound to the same nonces, so that a
recorded opening cannot be replayed.
"""

from __future__ import annotations

import secrets
import socket
import struct
import time
from enum import IntEnum
from typing import Final, NamedTuple

from tilewright.rpc.wire.errors import ProtocolError, RefusedError, TurnedAwayError
from tilewright.rpc.wire.keys import PROOF_BYTES, is_proof, proof
from tilewright.rpc.wire.limits import OPENING_SECONDS, START_SECONDS
from tilewright.support.errors import UserError

VERSION: Final = 1
TICKET_BYTES: Final = 32
NO_TICKET: Final = bytes(TICKET_BYTES)
_MAGIC: Final = b"TWRPC"
_NONCE_BYTES: Final = 32
_LISTENER: Final = struct.Struct(f">5sBBB{_NONCE_BYTES}s")
_CLIENT: Final = struct.Struct(f">5sBBB{_NONCE_BYTES}s{TICKET_BYTES}s{PROOF_BYTES}s")
_VERDICT: Final = struct.Struct(">BH")
_LONGEST_TEXT: Final = 512


class Role(IntEnum):
    """The kind of listener."""

    SERVER = 1
    TRACKER = 2


class Intent(IntEnum):
    """The client's request: an encrypted connection, or how a session ended."""

    OPEN = 1
    FATE = 2


class Verdict(IntEnum):
    """The listener's decision."""

    GRANTED = 1
    REFUSED = 2


class Opening(NamedTuple):
    """The data known to both sides after the first two messages."""

    role: Role
    intent: Intent
    server_nonce: bytes
    client_nonce: bytes
    ticket: bytes

    def proof(self, key: bytes, purpose: str, *parts: bytes) -> bytes:
        """A proof that is only valid for this connection."""
        kinds = bytes([VERSION, self.role, self.intent])
        nonces = (self.server_nonce, self.client_nonce, self.ticket)
        return proof(key, purpose, kinds, *nonces, *parts)


# ---- listener ------------------------------------------------------------------------------------


def challenge(sock: socket.socket, role: Role, key: bytes) -> Opening:
    """Request a proof from a new connection."""
    deadline = time.monotonic() + OPENING_SECONDS
    nonce = secrets.token_bytes(_NONCE_BYTES)
    sock.settimeout(OPENING_SECONDS)
    sock.sendall(_LISTENER.pack(_MAGIC, VERSION, role, 0, nonce))
    magic, version, intent, zero, client_nonce, ticket, given = _CLIENT.unpack(
        _read(sock, _CLIENT.size, deadline)
    )
    if (magic, version, zero) != (_MAGIC, VERSION, 0) or intent not in (Intent.OPEN, Intent.FATE):
        raise ProtocolError("a connection begins wrongly", reason="it is of another protocol")
    opening = Opening(role, Intent(intent), nonce, client_nonce, ticket)
    if not is_proof(given, opening.proof(key, "gate")):
        raise ProtocolError("a connection begins wrongly", reason="the client has another key")
    return opening


def send_verdict(
    sock: socket.socket, key: bytes, opening: Opening, verdict: Verdict, text: str
) -> None:
    """Send the verdict to the client, authenticated."""
    data = text.encode()[:_LONGEST_TEXT]
    head = _VERDICT.pack(verdict, len(data)) + data
    sock.settimeout(OPENING_SECONDS)
    sock.sendall(head + opening.proof(key, "verdict", head))


# ---- client --------------------------------------------------------------------------------------


def authenticate(
    sock: socket.socket, key: bytes, intent: Intent, ticket: bytes
) -> tuple[Opening, str]:
    """Prove possession of the key to a listener; gives its text."""
    deadline = time.monotonic() + OPENING_SECONDS
    magic, version, role, zero, nonce = _LISTENER.unpack(_read(sock, _LISTENER.size, deadline))
    if magic != _MAGIC or zero or role not in (Role.SERVER, Role.TRACKER):
        raise UserError("no Tilewright server answers there")
    if version != VERSION:
        reason = f"it speaks version {version} of the protocol, and this is version {VERSION}"
        raise UserError("the server is of another version", reason=reason)
    client_nonce = secrets.token_bytes(_NONCE_BYTES)
    opening = Opening(Role(role), intent, nonce, client_nonce, ticket)
    shown = opening.proof(key, "gate")
    sock.sendall(_CLIENT.pack(_MAGIC, VERSION, intent, 0, client_nonce, ticket, shown))
    # A server answers once it has a process for the client.
    return opening, _verdict(sock, key, opening, time.monotonic() + START_SECONDS)


def _verdict(sock: socket.socket, key: bytes, opening: Opening, deadline: float) -> str:
    try:
        head = _read(sock, _VERDICT.size, deadline)
    except ConnectionError:
        raise TurnedAwayError(
            "the server does not let this client in",
            reason="it has another key",
            remedy="use the key file that the server was started with",
        ) from None
    verdict, length = _VERDICT.unpack(head)
    if length > _LONGEST_TEXT:
        raise ProtocolError("the server's answer is damaged")
    text = _read(sock, length, deadline)
    shown = _read(sock, PROOF_BYTES, deadline)
    if not is_proof(shown, opening.proof(key, "verdict", head + text)):
        raise UserError("the server is not to be trusted", reason="it has another key")
    if verdict != Verdict.GRANTED:
        raise RefusedError("the device cannot be used now", reason=text.decode(errors="replace"))
    return text.decode(errors="replace")


def _read(sock: socket.socket, count: int, deadline: float) -> bytes:
    """Read `count` bytes before the deadline, however slowly they arrive."""
    data = bytearray()
    while len(data) < count:
        sock.settimeout(max(0.001, deadline - time.monotonic()))
        part = sock.recv(count - len(data))
        if not part:
            raise ConnectionResetError("the peer has closed the connection")
        data += part
    return bytes(data)
