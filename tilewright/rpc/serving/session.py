"""The process of one session: `python -m tilewright.rpc.serving.session FD`.

The server starts it before a client comes, sends it the settings through the socket FD, and then
the client's connection. From then on only the two communicate: the server waits for the process to
end, and removes its folder.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tilewright.rpc.serving.calls import Calls
from tilewright.rpc.serving.fates import Ending
from tilewright.rpc.serving.sessions import READY, TAKEN
from tilewright.rpc.wire.channel import Channel, Heartbeat, Parts
from tilewright.rpc.wire.errors import ProtocolError, error_data
from tilewright.rpc.wire.frames import Kind, Prefix
from tilewright.rpc.wire.handshake import Intent, Opening, Role
from tilewright.rpc.wire.limits import OPENING_SECONDS, Limits
from tilewright.rpc.wire.requests import Request
from tilewright.rpc.wire.tls import welcome
from tilewright.support.errors import TilewrightError, UserError
from tilewright.support.faults import as_tilewright_error


def main(number: int) -> Ending:
    control = socket.socket(fileno=number)
    settings = json.loads(_line(control))
    limits = Limits(**settings["limits"])
    _confine(limits)
    try:
        control.sendall(READY)
        data, numbers, _, _ = socket.recv_fds(control, 4096, 1)
        if not data or not numbers:
            return Ending.CLOSED
        control.sendall(TAKEN)
    except OSError:
        return Ending.CLOSED
    given: dict[str, Any] = json.loads(data)
    client = socket.socket(fileno=numbers[0])
    try:
        channel = _opened(client, settings, given)
    except (OSError, TilewrightError):
        return Ending.REJECTED
    calls = Calls(Path(settings["folder"]), limits, settings["trusted"])
    heartbeat = Heartbeat(channel, control, lambda: os._exit(Ending.CLOSED))
    return _serve(channel, calls, limits, heartbeat)


def _opened(client: socket.socket, settings: dict[str, Any], given: dict[str, Any]) -> Channel:
    nonces = [bytes.fromhex(given[k]) for k in ("server_nonce", "client_nonce", "ticket")]
    opening = Opening(Role.SERVER, Intent.OPEN, *nonces)
    facts = {k: settings[k] for k in ("target", "name", "limits")} | {"session": given["session"]}
    signal.setitimer(signal.ITIMER_REAL, OPENING_SECONDS)
    key = bytes.fromhex(settings["key"])
    channel, _ = welcome(client, Path(settings["certificate"]), key, opening, facts)
    signal.setitimer(signal.ITIMER_REAL, 0)
    return channel


def _serve(channel: Channel, calls: Calls, limits: Limits, heartbeat: Heartbeat) -> Ending:
    """Answer requests until the client closes the session."""
    channel.body_limit = max(limits.message_bytes, limits.folder_bytes)
    while True:
        try:
            prefix, header = channel.receive(limits.idle_seconds)
        except TimeoutError:
            return Ending.IDLE
        except OSError:
            return Ending.CLOSED
        except ProtocolError as error:
            return _damaged(channel, error, heartbeat)
        try:
            _answer(channel, calls, prefix, header, heartbeat, limits)
        except OSError:
            return Ending.CLOSED
        except ProtocolError as error:
            return _damaged(channel, error, heartbeat)


def _answer(
    channel: Channel,
    calls: Calls,
    prefix: Prefix,
    header: dict[str, Any],
    heartbeat: Heartbeat,
    limits: Limits,
) -> None:
    if prefix.kind is not Kind.REQUEST:
        raise ProtocolError("a message is out of order", reason="only requests are answered")

    def working() -> None:
        # The alarm ends the process, whatever it is doing.
        signal.setitimer(signal.ITIMER_REAL, _seconds_allowed(header, limits))
        heartbeat.begin(prefix.number)

    kind, fields, parts = _done(channel, calls, header, prefix.body_bytes, working)
    signal.setitimer(signal.ITIMER_REAL, 0)
    with channel.lock:
        heartbeat.rest()
        try:
            channel.send(kind, prefix.number, fields, parts)
        except UserError as error:
            channel.send(Kind.ERROR, prefix.number, error_data(error))


def _seconds_allowed(header: dict[str, Any], limits: Limits) -> float:
    """The time limit of a call: the server's, or the client's if that is shorter."""
    within = Request(header, ()).number("within") if "within" in header else 0.0
    return min(within or limits.call_seconds, limits.call_seconds)


def _done(
    channel: Channel,
    calls: Calls,
    header: dict[str, Any],
    body_bytes: int,
    working: Callable[[], None],
) -> tuple[Kind, dict[str, Any], Parts]:
    """The answer to a request, or its error."""
    try:
        fields, packed = calls.answer(channel, header, body_bytes, working)
        if not packed.arrays:
            return Kind.REPLY, fields, ()
        return Kind.REPLY, {**fields, "arrays": packed.specs()}, packed.parts()
    except (ProtocolError, ConnectionError, TimeoutError):
        raise
    except Exception as error:
        told = as_tilewright_error(error, "the call failed on the device")
    for _ in channel.body_chunks():
        continue
    return Kind.ERROR, error_data(told), ()


def _damaged(channel: Channel, error: ProtocolError, heartbeat: Heartbeat) -> Ending:
    """Send the error to the client, if possible, and end."""
    heartbeat.end()
    try:
        with channel.lock:
            channel.send(Kind.ERROR, 0, error_data(error))
    except OSError:
        pass
    return Ending.DAMAGED


def _line(control: socket.socket) -> bytes:
    """The server's first message, which ends with a newline."""
    data = b""
    while not data.endswith(b"\n"):
        part = control.recv(65536)
        if not part:
            raise SystemExit(Ending.CLOSED)
        data += part
    return data


def _confine(limits: Limits) -> None:
    """Set the process's resource limits."""
    import resource

    os.umask(0o077)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    most = limits.folder_bytes
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    if limits.memory_bytes:
        resource.setrlimit(resource.RLIMIT_DATA, (limits.memory_bytes, limits.memory_bytes))


if __name__ == "__main__":
    # Threads in native code must not keep the process alive.
    os._exit(main(int(sys.argv[1])))
