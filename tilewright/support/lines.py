"""Append-only files of lines, each written at once.

A process that is killed loses at most the line that it was writing. A partial line is terminated
when the file is opened next.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final

from tilewright.support.errors import UserError
from tilewright.support.files import AnyPath, text_path

#: Longer lines were not written by `LineFile`.
_LONGEST: Final = 16 << 20


class LineFile:
    """A file to which lines are appended; it is created if necessary."""

    def __init__(self, path: AnyPath) -> None:
        self.path = text_path(path)
        try:
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
            self._end_torn_line()
        except OSError as error:
            raise _refusal(self.path, "write", error) from None

    def _end_torn_line(self) -> None:
        size = os.lseek(self._file, 0, os.SEEK_END)
        if size:
            os.lseek(self._file, size - 1, os.SEEK_SET)
            if os.read(self._file, 1) != b"\n":
                os.write(self._file, b"\n")

    def add_line(self, line: bytes) -> None:
        """Append a line; it is in the file when this returns, even if the process dies."""
        try:
            written = os.write(self._file, line)
        except OSError as error:
            raise _refusal(self.path, "write", error) from None
        if written < len(line):
            raise UserError(f"cannot write {self.path}", reason="the disk is full")

    def close(self) -> None:
        os.close(self._file)


def lines_of(path: str) -> Iterator[bytes]:
    """The non-empty lines of a file; a last one without an end is left out."""
    try:
        with open(path, "rb") as file:
            while line := file.readline(_LONGEST):
                if line.endswith(b"\n") and line.strip():
                    yield line
    except OSError as error:
        raise _refusal(path, "read", error) from None


def _refusal(path: str, what: str, error: OSError) -> UserError:
    return UserError(f"cannot {what} the records in {path}", reason=error.strerror or str(error))
