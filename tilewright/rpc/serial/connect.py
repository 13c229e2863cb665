"""`connect_serial`: the board at the other end of a line."""

from __future__ import annotations

from typing import Any

from tilewright.rpc.serial.device import SerialDevice
from tilewright.rpc.serial.lines import stream_of
from tilewright.rpc.serial.monitor import Monitor
from tilewright.support.errors import UserError


def connect_serial(
    port: Any, *, baud: int = 115_200, patience: float = 1.0, seconds: float = 60.0
) -> SerialDevice:
    """The board that runs the monitor at the other end of a serial line.

    `port` is the path of a serial port, `tcp://host:port`, or an open stream: a socket, a port of
    pyserial, or a `Stream`. `patience` is the time limit of an answer in seconds, besides its
    transmission, and `seconds` that of a call.
    """
    if baud < 1 or patience <= 0 or seconds <= 0:
        raise UserError("cannot open the line", reason="speed and times must be positive")
    stream = stream_of(port, baud)
    name = str(port) if isinstance(port, str) else type(port).__name__
    try:
        return SerialDevice(Monitor(stream, name, baud, patience), seconds)
    except BaseException:
        stream.close()
        raise
