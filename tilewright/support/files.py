"""Files that are written completely or not at all."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from tilewright.support.errors import UserError

#: A path in any form that the operating system takes.
AnyPath = str | bytes | os.PathLike[str] | os.PathLike[bytes]


def text_path(path: AnyPath) -> str:
    """A path as text."""
    try:
        return os.fsdecode(path)
    except TypeError:
        reason = f"got {type(path).__name__}"
        raise UserError("a path must be text, bytes or a Path", reason=reason) from None


@contextmanager
def replacing(path: AnyPath) -> Generator[BinaryIO]:
    """A file to write to, which replaces `path` when the block ends normally.

    If the block ends otherwise, `path` stays as it was, and no other file is left behind.
    """
    path = text_path(path)
    place = _place(path)
    # Not longer than the name itself may be: systems allow 255 bytes.
    temporary = place.with_name(f".tilewright-{os.urandom(8).hex()}.tmp")
    try:
        with open(temporary, "xb") as file:
            yield file
        os.replace(temporary, place)
    except OSError as error:
        raise _refusal(path, error.strerror or str(error)) from None
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()


def _place(path: str) -> Path:
    """The path to replace: the target of a link, but never a device."""
    if "\0" in path:
        raise _refusal(path.replace("\0", "\\0"), "its name holds a zero byte")
    place = Path(os.path.realpath(path))
    if place.is_dir():
        raise _refusal(path, "it is a folder", f"name a file in it: {place / 'model.twm'}")
    if place.exists() and not place.is_file():
        raise _refusal(path, "it is not a regular file")
    if not place.parent.is_dir():
        raise _refusal(path, f"there is no folder {place.parent}", "make the folder first")
    return place


def _refusal(path: str, reason: str, remedy: str = "") -> UserError:
    return UserError(f"cannot write {path}", reason=reason, remedy=remedy)
