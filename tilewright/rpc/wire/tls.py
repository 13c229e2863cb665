"""Encryption, and protection against a man in the middle.

TLS 1.3 by Python's `ssl`. A listener makes a self-signed certificate when it starts. It is trusted
because both ends prove possession of the key, over the nonces of this connection *and the
fingerprint of the certificate that they see*. A man in the middle shows another certificate, and
cannot make the proof for it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import socket
import ssl
from collections.abc import Callable, Generator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from tilewright.rpc.wire.channel import Channel, keep_alive
from tilewright.rpc.wire.errors import ProtocolError
from tilewright.rpc.wire.frames import Kind
from tilewright.rpc.wire.handshake import VERSION, Opening
from tilewright.rpc.wire.keys import is_proof
from tilewright.rpc.wire.limits import GREETING_BYTES, OPENING_SECONDS
from tilewright.support.errors import UserError

_DAYS: Final = 3650
#: The number of a client's first message.
_GREETING: Final = 1


def make_certificate(folder: Path) -> Path:
    """A file with a new private key and its certificate, which only its owner can read."""
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
    except ImportError:
        raise UserError(
            "servers for remote devices need the package cryptography",
            remedy="pip install tilewright[rpc]",
        ) from None
    private = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "tilewright-rpc")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(private.public_key())
        .serial_number(x509.random_serial_number())
        # Clocks of devices are often wrong, and these dates are not checked.
        .not_valid_before(now - timedelta(days=_DAYS))
        .not_valid_after(now + timedelta(days=_DAYS))
        .sign(private, hashes.SHA256())
    )
    forms = serialization
    secret = private.private_bytes(
        forms.Encoding.PEM, forms.PrivateFormat.PKCS8, forms.NoEncryption()
    )
    path = folder / "certificate.pem"
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(secret + certificate.public_bytes(forms.Encoding.PEM))
    return path


def server_context(certificate: Path) -> ssl.SSLContext:
    """The settings of a listener."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_cert_chain(certificate)
    # Sessions are never resumed.
    context.num_tickets = 0
    return context


def binary_certificate(certificate: Path) -> bytes:
    """The certificate in DER form, as clients see it, for its fingerprint."""
    text = certificate.read_text(encoding="ascii")
    return ssl.PEM_cert_to_DER_cert(text[text.index("-----BEGIN CERTIFICATE-----") :])


def welcome(
    sock: socket.socket,
    certificate: Path,
    key: bytes,
    opening: Opening,
    facts: dict[str, Any],
) -> tuple[Channel, dict[str, Any]]:
    """The listener's side: encrypt, verify the client's proof, and send its own.

    `facts` are sent to the client; returns the client's facts.
    """
    context = server_context(certificate)
    with _encrypted(sock, lambda: context.wrap_socket(sock, server_side=True)) as channel:
        print_ = hashlib.sha256(binary_certificate(certificate)).digest()
        prefix, header = channel.receive(OPENING_SECONDS)
        given = _proof_in(header)
        if prefix.kind is not Kind.REQUEST or prefix.body_bytes or header.get("version") != VERSION:
            raise ProtocolError("a connection begins wrongly", reason="the greeting is damaged")
        if not is_proof(given, opening.proof(key, "client", print_)):
            raise ProtocolError("a connection begins wrongly", reason="the client's proof is wrong")
        shown = opening.proof(key, "server", print_).hex()
        channel.send(Kind.REPLY, prefix.number, {**facts, "proof": shown})
        return channel, header


def open_channel(
    sock: socket.socket, key: bytes, opening: Opening, body_limit: int, about: dict[str, Any]
) -> tuple[Channel, dict[str, Any]]:
    """The client's side; gives the channel and the listener's facts."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    # Self-signed: verified by the proofs below instead.
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with _encrypted(sock, lambda: context.wrap_socket(sock)) as channel:
        print_ = hashlib.sha256(channel.socket.getpeercert(binary_form=True) or b"").digest()
        shown = opening.proof(key, "client", print_).hex()
        channel.send(Kind.REQUEST, _GREETING, {**about, "version": VERSION, "proof": shown})
        _, header = channel.answer(_GREETING, OPENING_SECONDS)
        if not is_proof(_proof_in(header), opening.proof(key, "server", print_)):
            raise UserError(
                "the connection is not to be trusted",
                reason="whoever answers cannot prove that it has the key",
                remedy="somebody may stand between this machine and the server",
            )
        channel.body_limit = body_limit
        return channel, header


@contextlib.contextmanager
def _encrypted(sock: socket.socket, wrap: Callable[[], ssl.SSLSocket]) -> Generator[Channel]:
    """A channel over a socket, which is closed if the block raises."""
    sock.settimeout(OPENING_SECONDS)
    keep_alive(sock)
    channel = Channel(wrap(), GREETING_BYTES)
    try:
        yield channel
    except BaseException:
        channel.close()
        raise


def _proof_in(header: dict[str, Any]) -> bytes:
    try:
        return bytes.fromhex(str(header.get("proof", "")))
    except ValueError:
        return b""
