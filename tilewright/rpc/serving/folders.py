"""The folders of servers and sessions: the only places they write to.

BASE/server-XXXX/        one for each server, locked while it runs
    certificate.pem
    session-YYYY/        one for each session, removed at its end
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from pathlib import Path
from typing import Final

from tilewright.support.errors import UserError

_LOCK: Final = "lock"


class Folders:
    """The folder of one server; folders of killed servers are removed first."""

    def __init__(self, base: Path | None = None) -> None:
        self._base = _default_base() if base is None else base
        _require_own(self._base)
        _sweep(self._base)
        self.path = Path(tempfile.mkdtemp(prefix="server-", dir=self._base))
        self._lock = os.open(self.path / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        _is_locked(self._lock)

    def make(self) -> Path:
        """A new folder for a session."""
        return Path(tempfile.mkdtemp(prefix="session-", dir=self.path))

    def close(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


def _default_base() -> Path:
    return Path(tempfile.gettempdir()) / f"tilewright-rpc-{os.getuid()}"


def _require_own(base: Path) -> None:
    """Refuse a folder that other users can write to, since code is loaded from it."""
    base.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = base.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise UserError(
            f"cannot serve from {base}",
            reason="it is not a folder that this user alone can write to",
            remedy="name another by --folder, or remove it",
        )


def _sweep(base: Path) -> None:
    """Remove the folders of killed servers, whose locks are free."""
    for folder in base.glob("server-*"):
        try:
            lock = os.open(folder / _LOCK, os.O_RDWR)
        except OSError:
            continue
        try:
            if _is_locked(lock):
                shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(lock)


def _is_locked(number: int) -> bool:
    """Whether this process could lock an open file, which holds until it is closed."""
    # Windows, which has clients but no servers, does not have it.
    import fcntl

    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
