"""Starts the processes of sessions, waits for them, and remembers how they ended."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tilewright.rpc.serving.fates import fate_of
from tilewright.rpc.serving.folders import Folders
from tilewright.rpc.wire.fates import Fate
from tilewright.rpc.wire.handshake import Opening
from tilewright.rpc.wire.limits import OPENING_SECONDS, START_SECONDS, Limits

#: A process's message when it is ready for a client.
READY: Final = b"ready\n"
#: Its message when it has received its client, before it reads from the connection.
TAKEN: Final = b"taken\n"
#: Attempts to hand over a client: a process may be killed at any time.
_ATTEMPTS: Final = 3
#: Most ended sessions that are remembered.
_REMEMBERED: Final = 256
#: Seconds to wait for a session to end before a client is refused.
_GRACE_SECONDS: Final = 3.0
#: The same before a client is told how its session ended: shorter than its own time-out.
_FATE_SECONDS: Final = 0.8 * OPENING_SECONDS
#: Seconds for a ready process to take its client, who may have to wait for two.
_TAKING_SECONDS: Final = 0.3 * OPENING_SECONDS
_PACKAGE: Final = Path(__file__).parents[3]


@dataclass(frozen=True)
class _Process:
    """A process that serves one client, or waits for one; its name is that of the session."""

    name: str
    process: subprocess.Popen[bytes]
    control: socket.socket
    folder: Path


class Sessions:
    """The sessions of one server, each with its own process and folder."""

    def __init__(
        self,
        folders: Folders,
        limits: Limits,
        settings: dict[str, Any],
        ended: Callable[[bytes], None],
    ) -> None:
        self._folders, self._limits, self._settings = folders, limits, settings
        self._ended = ended
        self._changed = threading.Condition()
        self._running: dict[str, _Process] = {}
        #: Sessions reserved for clients that are not running yet.
        self._coming = 0
        self._fates: OrderedDict[str, Fate] = OrderedDict()
        self._closing = False
        self._spare: _Process | None = None
        self._refill()

    @property
    def count(self) -> int:
        return len(self._running) + self._coming

    # ---- beginning ------------------------------------------------------------------------------

    def has_room(self) -> bool:
        """Reserve a session; False if none becomes free within a short wait."""
        end = time.monotonic() + _GRACE_SECONDS
        with self._changed:
            while self.count >= self._limits.sessions or self._closing:
                left = end - time.monotonic()
                if left <= 0 or self._closing:
                    return False
                self._changed.wait(left)
            self._coming += 1
            return True

    def give_up_room(self) -> None:
        """Cancel the reservation for a client that did not come."""
        with self._changed:
            self._coming -= 1
            self._changed.notify_all()

    def begin(self, client: socket.socket, opening: Opening, tell: Callable[[bool], None]) -> None:
        """Hand a client to a process; a session must have been reserved.

        `tell` is called as soon as it is known whether there is a working process. If that ends
        before it has taken the client, another one gets it, since nothing of the connection has
        been read.
        """
        made = self._ready()
        try:
            tell(made is not None)
            for _ in range(_ATTEMPTS):
                if made is None:
                    break
                if _takes(made, client, opening):
                    waiting = (made, opening.ticket)
                    threading.Thread(target=self._wait, args=waiting, daemon=True).start()
                    return
                self._dismiss(made)
                made = self._ready()
        except OSError:
            # The client has disconnected.
            pass
        if made is not None:
            self._dismiss(made)
        self.give_up_room()
        self._ended(opening.ticket)

    def _ready(self) -> _Process | None:
        """A process that is ready for its client; uses up the reservation."""
        for _ in range(_ATTEMPTS):
            try:
                made = self._take()
            except OSError:
                return None
            with self._changed:
                self._coming -= 1
                self._running[made.name] = made
            threading.Thread(target=self._refill, daemon=True).start()
            # Wait until the settings have been read, as the socket does not separate messages.
            if _says(made, READY, START_SECONDS):
                return made
            self._dismiss(made)
        return None

    def _dismiss(self, made: _Process) -> None:
        """Discard a process, and restore the reservation for another one."""
        with self._changed:
            self._running.pop(made.name, None)
            self._coming += 1
        self._discard(made)

    def _take(self) -> _Process:
        with self._changed:
            made, self._spare = self._spare, None
        if made is not None and made.process.poll() is None:
            return made
        if made is not None:
            self._discard(made)
        return self._start()

    def _refill(self) -> None:
        """Start a process for the next client in advance, since that takes a while."""
        with self._changed:
            if self._spare is not None or self._closing:
                return
        made = self._start()
        with self._changed:
            if self._spare is None and not self._closing:
                self._spare, made = made, None
        if made is not None:
            self._discard(made)

    def _start(self) -> _Process:
        folder = self._folders.make()
        ours, theirs = socket.socketpair()
        words = [sys.executable, "-P", "-m", "tilewright.rpc.serving.session", str(theirs.fileno())]
        process = subprocess.Popen(
            words,
            cwd=folder,
            env=_environment(folder),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
        )
        theirs.close()
        settings = {**self._settings, "folder": str(folder), "limits": self._limits.as_data()}
        ours.sendall(json.dumps(settings).encode() + b"\n")
        return _Process(secrets.token_hex(32), process, ours, folder)

    # ---- ending ---------------------------------------------------------------------------------

    def _wait(self, made: _Process, ticket: bytes) -> None:
        """Wait for the end of a session, and clean up."""
        code = made.process.wait()
        self._discard(made)
        with self._changed:
            self._running.pop(made.name, None)
            self._fates[made.name] = fate_of(code, self._limits)
            while len(self._fates) > _REMEMBERED:
                self._fates.popitem(last=False)
            self._changed.notify_all()
        self._ended(ticket)

    def _discard(self, made: _Process) -> None:
        made.control.close()
        with contextlib.suppress(OSError):
            made.process.kill()
        made.process.wait()
        shutil.rmtree(made.folder, ignore_errors=True)

    def fate(self, name: str) -> Fate:
        """How a session ended; "unknown" while that is not known."""
        end = time.monotonic() + _FATE_SECONDS
        with self._changed:
            while name in self._running and time.monotonic() < end:
                self._changed.wait(max(0.0, end - time.monotonic()))
            return self._fates.get(name, Fate())

    def close(self) -> None:
        """End all sessions."""
        with self._changed:
            self._closing = True
            ending = [*self._running.values(), *([self._spare] if self._spare else [])]
            self._spare = None
            self._changed.notify_all()
        for made in ending:
            self._discard(made)


def _takes(made: _Process, client: socket.socket, opening: Opening) -> bool:
    """Hand a client to a process; gives whether it has taken it."""
    given = {
        "session": made.name,
        "server_nonce": opening.server_nonce.hex(),
        "client_nonce": opening.client_nonce.hex(),
        "ticket": opening.ticket.hex(),
    }
    try:
        socket.send_fds(made.control, [json.dumps(given).encode()], [client.fileno()])
    except OSError:
        return False
    return _says(made, TAKEN, _TAKING_SECONDS)


def _says(made: _Process, word: bytes, seconds: float) -> bool:
    """Whether a process sends this word in time."""
    made.control.settimeout(seconds)
    try:
        return made.control.recv(len(word), socket.MSG_WAITALL) == word
    except OSError:
        return False


def _environment(folder: Path) -> dict[str, str]:
    """The server's environment, with the session's folder for temporary files."""
    paths = [str(_PACKAGE), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(paths),
        "PYTHONDONTWRITEBYTECODE": "1",
        "TMPDIR": str(folder),
        "TILEWRIGHT_CACHE": "0",
        "TILEWRIGHT_FAULTS_DIR": str(folder),
    }
