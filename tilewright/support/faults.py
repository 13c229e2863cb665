"""Turns faults of our own into `InternalError`s that say what was being done.

    with during("pass", "fuse", subject=module):
        …

`during` surrounds the steps of the compiler: reading a node, a pass, a kernel, the host program.
An exception that leaves it and was not raised on purpose becomes an `InternalError`, with the
original as its cause; to one that is an `InternalError` already, the step is added.

`at_the_border` surrounds what users call other than compiling: loading, saving, exporting.
"""

from __future__ import annotations

import errno
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager
from types import TracebackType
from typing import Any, Final

from tilewright.support.errors import InternalError, TilewrightError, UserError, named

#: Errors by which the system refuses any program, so that a report would not help.
_REFUSED_BY_THE_SYSTEM: Final = {
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EROFS,
    errno.EACCES,
    errno.EPERM,
    errno.EMFILE,
    errno.ENFILE,
    errno.EIO,
    errno.EAGAIN,
}


def during(kind: str, name: str, subject: Any = None) -> AbstractContextManager[None]:
    """A block in which the `kind` called `name` is made from `subject`.

    A `MemoryError` passes through unchanged: some callers can retry with less memory.
    """
    return _Border(kind, name, subject)


class _Border(AbstractContextManager[None]):
    __slots__ = ("_kind", "_name", "_subject")

    def __init__(self, kind: str, name: str, subject: Any) -> None:
        self._kind, self._name, self._subject = kind, name, subject

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, _: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        del at
        if not isinstance(error, Exception) or isinstance(error, UserError | MemoryError):
            return
        reported = as_tilewright_error(error, f"{named(self._kind, self._name)} failed")
        if isinstance(reported, InternalError):
            reported.places.setdefault(self._kind, self._name)
            if self._subject is not None:
                reported.subjects.append(self._subject)
        if reported is not error:
            raise reported from error


@contextmanager
def at_the_border(what: str) -> Generator[None]:
    """A block that users call: only our own errors leave it, and `what` says what failed."""
    try:
        yield
    except TilewrightError:
        raise
    except Exception as error:
        raise as_tilewright_error(error, what) from error


def as_tilewright_error(error: Exception, what: str) -> TilewrightError:
    """The error itself, if it is one of ours; else the one to raise in its place."""
    if isinstance(error, TilewrightError):
        return error
    if isinstance(error, MemoryError) or _is_out_of_memory(error):
        return UserError("there is not enough memory", reason=str(error))
    if isinstance(error, OSError) and error.errno in _REFUSED_BY_THE_SYSTEM:
        name = f"{error.filename}: " if error.filename else ""
        return UserError(what, reason=f"{name}{error.strerror}")
    return InternalError(what, reason=f"{type(error).__name__}: {error}")


def _is_out_of_memory(error: Exception) -> bool:
    return isinstance(error, OSError) and error.errno == errno.ENOMEM
