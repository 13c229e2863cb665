"""Limits on the resources of clients, and time-outs."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Final

#: Most bytes of a message's JSON header.
HEADER_BYTES: Final = 1 << 20
#: Most bytes of a message's body before the peer has proved that it has the key.
GREETING_BYTES: Final = 4096
#: Seconds for all steps of opening a connection.
OPENING_SECONDS: Final = 10.0
#: Seconds for the process of a session to start, on a slow machine.
START_SECONDS: Final = 60.0
#: Seconds between signs of life of a working peer.
ALIVE_SECONDS: Final = 2.0
#: Seconds of silence after which a working peer is given up.
PATIENCE_SECONDS: Final = 15.0
#: Bytes per read or write.
CHUNK_BYTES: Final = 1 << 20
#: Most unauthenticated connections; the oldest one is dropped for a new one.
OPENING_CONNECTIONS: Final = 64


@dataclass(frozen=True)
class Limits:
    """The limits of one server."""

    #: Concurrent sessions; with one, others do not disturb timings.
    sessions: int = 1
    #: Bytes of arrays in one message.
    message_bytes: int = 1 << 30
    #: Bytes of files in the folder of a session.
    folder_bytes: int = 4 << 30
    #: Bytes that a session may allocate; 0: no limit.
    memory_bytes: int = 0
    #: Seconds per call.
    call_seconds: float = 300.0
    #: Seconds that a session may be idle.
    idle_seconds: float = 600.0

    def as_data(self) -> dict[str, Any]:
        return asdict(self)
