"""Signed artifacts: Ed25519 over the names and contents of all members.

A key is the path of a PEM file, its text as bytes, or 32 raw bytes. The package `cryptography` is
imported only to sign or to verify.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, cast

from tilewright.support.errors import UserError
from tilewright.support.files import text_path

#: The member that holds the signature.
SIGNATURE: Final = "signature"
#: Domain separation: a signature of an artifact is valid for nothing else.
_PURPOSE: Final = b"tilewright artifact 1\n"
_RAW_BYTES: Final = 32

Key = str | bytes | os.PathLike[str]
Keys = Key | Sequence[Key]


def signed_text(digests: Mapping[str, bytes]) -> bytes:
    """The signed text: the SHA-256 of every member but the signature, by name."""
    lines = [f"{name} {digests[name].hex()}\n" for name in sorted(digests) if name != SIGNATURE]
    return _PURPOSE + "".join(lines).encode()


class Signer:
    """Signs with a private key."""

    def __init__(self, key: Key) -> None:
        self._key = _read(key, "private", "sign by")

    def signature(self, digests: Mapping[str, bytes]) -> bytes:
        return self._key.sign(signed_text(digests))


class Trust:
    """The public keys whose artifacts are accepted."""

    def __init__(self, keys: Keys) -> None:
        listed = list(keys) if isinstance(keys, list | tuple) else [keys]
        if not listed:
            raise UserError("cannot trust nobody", remedy="pass a public key, or leave it out")
        self._keys = [_read(cast("Key", key), "public", "trust") for key in listed]

    def covers(self, digests: Mapping[str, bytes], signature: bytes) -> bool:
        """Whether one of the keys signed these members."""
        from cryptography.exceptions import InvalidSignature

        for key in self._keys:
            try:
                key.verify(signature, signed_text(digests))
            except InvalidSignature:
                continue
            return True
        return False


def digest_of(parts: Iterable[bytes | memoryview]) -> bytes:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.digest()


def make_key_pair() -> tuple[bytes, bytes]:
    """A new private key and its public key, as PEM."""
    kinds, forms = _cryptography()
    private = kinds.Ed25519PrivateKey.generate()
    pem = forms.Encoding.PEM
    secret = private.private_bytes(pem, forms.PrivateFormat.PKCS8, forms.NoEncryption())
    public = private.public_key().public_bytes(pem, forms.PublicFormat.SubjectPublicKeyInfo)
    return secret, public


def _read(key: Key, kind: str, purpose: str) -> Any:
    data = key if isinstance(key, bytes) else _contents(key, purpose)
    shown = "these bytes" if isinstance(key, bytes) else text_path(key)
    kinds, forms = _cryptography()
    wanted = kinds.Ed25519PrivateKey if kind == "private" else kinds.Ed25519PublicKey
    try:
        if len(data) == _RAW_BYTES:
            is_private = kind == "private"
            return (wanted.from_private_bytes if is_private else wanted.from_public_bytes)(data)
        read = forms.load_pem_public_key
        found = forms.load_pem_private_key(data, None) if kind == "private" else read(data)
    except (ValueError, TypeError) as error:
        reason = str(error).splitlines()[0] if str(error) else "it is no PEM"
        raise _refusal(shown, purpose, kind, reason) from None
    except Exception as error:
        # `cryptography` raises errors of its own for unsupported kinds of keys.
        raise _refusal(shown, purpose, kind, f"{type(error).__name__}: {error}") from None
    if not isinstance(found, wanted):
        raise _refusal(shown, purpose, kind, f"it is a {type(found).__name__}")
    return found


def _contents(path: str | os.PathLike[str], purpose: str) -> bytes:
    name = text_path(path)
    try:
        with open(name, "rb") as file:
            return file.read(1 << 16)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise _refusal(name.replace("\0", "\\0"), purpose, "", reason) from None


def _refusal(shown: str, purpose: str, kind: str, reason: str) -> UserError:
    remedy = f"pass an Ed25519 {kind} key: a PEM file, or 32 bytes" if kind else ""
    return UserError(f"cannot {purpose} {shown}", reason=reason, remedy=remedy)


def _cryptography() -> tuple[Any, Any]:
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError:
        raise UserError(
            "signatures need the package cryptography",
            remedy="pip install tilewright[sign]",
        ) from None
    return ed25519, serialization
