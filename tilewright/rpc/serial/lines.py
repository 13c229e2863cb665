"""Byte streams to a board: serial ports, sockets, and other objects that read and write."""

from __future__ import annotations

import errno
import os
import select
import socket
import sys
import time
from collections.abc import Callable
from typing import Any, Final, Protocol, runtime_checkable

from tilewright.rpc.client.link import split_address
from tilewright.rpc.wire.errors import UnreachableError
from tilewright.rpc.wire.limits import OPENING_SECONDS
from tilewright.support.errors import UserError

#: The prefix of a stream over TCP, such as that of an emulator or of ser2net.
_TCP: Final = "tcp://"
_CHUNK: Final = 4096


@runtime_checkable
class Stream(Protocol):
    """A line to a board. A broken line raises `OSError`."""

    def receive(self, seconds: float) -> bytes:
        """The received bytes; empty if none arrive within this many seconds."""
        ...

    def send(self, data: bytes, seconds: float) -> None:
        """Send all bytes within this many seconds."""
        ...

    def close(self) -> None: ...


class DescriptorStream:
    """A stream over a file descriptor: a serial port, or a socket."""

    def __init__(self, descriptor: int, close: Callable[[], None]) -> None:
        self._descriptor, self._close = descriptor, close
        os.set_blocking(descriptor, False)

    def receive(self, seconds: float) -> bytes:
        if not select.select([self._descriptor], [], [], max(0.0, seconds))[0]:
            return b""
        try:
            data = os.read(self._descriptor, _CHUNK)
        except BlockingIOError:
            return b""
        if not data:
            raise OSError(errno.EPIPE, "the line was cut")
        return data

    def send(self, data: bytes, seconds: float) -> None:
        end, rest = time.monotonic() + seconds, memoryview(data)
        while rest:
            left = end - time.monotonic()
            if left < 0 or not select.select([], [self._descriptor], [], left)[1]:
                raise TimeoutError(errno.ETIMEDOUT, "the line takes no bytes")
            rest = rest[os.write(self._descriptor, rest) :]

    def close(self) -> None:
        self._close()


def stream_of(port: Any, baud: int) -> Stream:
    """The stream for a port's name, a stream, or any object with a file descriptor."""
    if isinstance(port, Stream):
        return port
    if hasattr(port, "fileno"):
        return DescriptorStream(port.fileno(), port.close)
    return _open_line(str(port), baud)


def _open_line(port: str, baud: int) -> Stream:
    """The stream of a serial port by its path, or of `tcp://host:port`."""
    try:
        if port.startswith(_TCP):
            address = split_address(port.removeprefix(_TCP))
            sock = socket.create_connection(address, OPENING_SECONDS)
            return DescriptorStream(sock.fileno(), sock.close)
        return _serial_port(port, baud)
    except OSError as error:
        raise UnreachableError(
            f"cannot open {port}",
            reason=error.strerror or str(error),
            remedy="see that the board is plugged in, and that you may use its port",
        ) from None


def _serial_port(path: str, baud: int) -> Stream:
    if sys.platform == "win32":
        reason, remedy = "ports are opened on POSIX systems alone", "pass a Stream over it"
        raise UserError(f"cannot open {path}", reason=reason, remedy=remedy)
    import termios
    import tty

    speed = getattr(termios, f"B{baud}", None)
    if speed is None:
        raise UserError(f"cannot open {path}", reason=f"{baud} is no speed of serial lines here")
    descriptor = os.open(path, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK)
    try:
        tty.setraw(descriptor)
        state = termios.tcgetattr(descriptor)
        state[2] |= termios.CLOCAL | termios.CREAD
        state[4] = state[5] = speed
        termios.tcsetattr(descriptor, termios.TCSANOW, state)
        termios.tcflush(descriptor, termios.TCIOFLUSH)
    except termios.error as error:
        os.close(descriptor)
        raise OSError(error.args[0], f"it is no serial port: {error.args[1]}") from None
    return DescriptorStream(descriptor, lambda: os.close(descriptor))
