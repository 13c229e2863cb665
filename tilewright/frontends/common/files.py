"""Files and bytes as arrays: plain files are mapped, never copied."""

from __future__ import annotations

import mmap
import os
import stat
from pathlib import Path
from typing import Any, Final

import numpy as np

from tilewright.support.errors import UserError
from tilewright.support.narrowing import is_bytes, is_path

#: Longer descriptions of networks are refused.
_LONGEST_TEXT: Final = 1 << 26


def mapped_file(file: Path) -> np.ndarray[Any, Any]:
    """The bytes of a file, where the system maps them."""
    # A pipe or a device would block or never end; only plain files have weights.
    handle = os.open(file, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise ValueError("it is no plain file")
        if status.st_size == 0:
            return np.empty(0, np.uint8)
        return np.frombuffer(mmap.mmap(handle, 0, access=mmap.ACCESS_READ), np.uint8)
    finally:
        os.close(handle)


def content_of(given: Any, what: str) -> np.ndarray[Any, Any]:
    """The bytes that a user gives: by path, or directly."""
    if is_bytes(given):
        return np.frombuffer(given, np.uint8)
    if not is_path(given):
        raise UserError(
            f"cannot read {what} from {type(given).__name__}", remedy="pass a path or bytes"
        )
    path = Path(os.fspath(given))
    try:
        return mapped_file(path)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UserError(f"cannot read {what} {path}", reason=reason) from None


def text_of(given: Any, what: str) -> str:
    """The text of a file that describes a network."""
    content = content_of(given, what)
    if content.size > _LONGEST_TEXT:
        raise UserError(f"{what} has {content.size} bytes", reason="it should be a short text")
    try:
        return content.tobytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{what} is no text", reason=str(error)) from None
