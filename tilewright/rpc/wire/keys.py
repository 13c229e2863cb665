"""The key shared by clients, servers and trackers, and proofs of its possession.

A key is 32 random bytes, written as one line of text. It is never transmitted: each side proves its
possession by an HMAC over nonces of both (`proof`). Since an eavesdropper can test guesses against
a proof offline, passphrases are not accepted as keys.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from typing import Final

from tilewright.support.errors import UserError
from tilewright.support.files import text_path

PROOF_BYTES: Final = 32
_KEY_BYTES: Final = 32
_PREFIX: Final = "tilewright-rpc-key-1:"

#: A key: its bytes, its text, or the path of a file with its text.
AnyKey = bytes | str | os.PathLike[str]


def make_key() -> str:
    """The text of a new key, as stored in a key file."""
    return _PREFIX + secrets.token_hex(_KEY_BYTES)


def read_key(key: AnyKey) -> bytes:
    """The bytes of a key."""
    if isinstance(key, bytes):
        return _from_bytes(key)
    text = text_path(key)
    return _from_text(text) if text.startswith(_PREFIX) else _from_file(text)


def write_key(path: str | os.PathLike[str]) -> None:
    """Write a new key to a new file that only its owner can read."""
    try:
        number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        reason = "it is there, and keys are not replaced"
        raise UserError(f"cannot write {text_path(path)}", reason=reason) from None
    with open(number, "w", encoding="ascii") as file:
        file.write(make_key() + "\n")


def proof(key: bytes, purpose: str, *parts: bytes) -> bytes:
    """An HMAC with the key; parts are separated by their lengths."""
    mac = hmac.new(key, b"tilewright rpc 1 " + purpose.encode(), hashlib.sha256)
    for part in parts:
        mac.update(len(part).to_bytes(8, "big"))
        mac.update(part)
    return mac.digest()


def is_proof(given: bytes, expected: bytes) -> bool:
    """Compare proofs in constant time."""
    return hmac.compare_digest(given, expected)


def _from_bytes(data: bytes) -> bytes:
    if len(data) == _KEY_BYTES:
        return data
    if data.startswith(_PREFIX.encode()):
        return _from_text(data.decode("ascii", "replace"))
    raise _refusal("these bytes", f"there are {len(data)}, not {_KEY_BYTES}")


def _from_text(text: str) -> bytes:
    try:
        data = bytes.fromhex(text.strip().removeprefix(_PREFIX))
    except ValueError:
        raise _refusal("this text", "it holds other than hexadecimal digits") from None
    return _from_bytes(data)


def _from_file(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            text = file.read(1024).decode("ascii", "replace").strip()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise _refusal(path.replace("\0", "\\0"), reason) from None
    if not text.startswith(_PREFIX):
        raise _refusal(path, f"it does not begin with {_PREFIX}")
    return _from_text(text)


def _refusal(shown: str, reason: str) -> UserError:
    remedy = "make a key by `tilewright rpc keygen FILE`, and pass the file's path"
    return UserError(f"{shown} is no key for remote devices", reason=reason, remedy=remedy)
