"""Servers in C that run, for tests."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import tilewright as tw
from tests.emulated.emulator import FETCHED

#: The sources of mbedTLS, as `make emulators` fetches them.
MBEDTLS = FETCHED / "mbedtls"


class Served:
    """A server that runs, and its key."""

    def __init__(self, program: Path, folder: Path, *words: str, **env: str) -> None:
        self.key = folder / "key"
        if not self.key.exists():
            tw.rpc.write_key(self.key)
        command = [str(program), "serve", "--key-file", str(self.key), "--name", "dev", *words]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, env={**os.environ, **env}
        )
        assert self.process.stdout is not None
        self.address = self.process.stdout.readline().split()[-1]

    def connect(self) -> Any:
        return tw.rpc.connect(self.address, key=self.key)

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(10)
