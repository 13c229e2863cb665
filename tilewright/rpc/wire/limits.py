"""What a server lets its clients take, and how long anybody waits."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Final

#: Bytes of the JSON header of a message, at most.
HEADER_BYTES: Final = 1 << 20
#: Bytes of the body of a message before the peer has proved that it knows the key.
GREETING_BYTES: Final = 4096
#: Seconds for the opening of a connection, all steps together.
OPENING_SECONDS: Final = 10.0
#: Seconds for the process of a session to start, on a slow machine.
START_SECONDS: Final = 60.0
#: Seconds between signs of life of a peer that is at work.
ALIVE_SECONDS: Final = 2.0
#: Seconds of silence after which a peer that should be at work is given up.
PATIENCE_SECONDS: Final = 15.0
#: Bytes that are read or written at a time.
CHUNK_BYTES: Final = 1 << 20
#: Connections that have not proved anything yet; the oldest one makes room for another.
OPENING_CONNECTIONS: Final = 64


@dataclass(frozen=True)
class Limits:
    """What one server grants."""

    #: Sessions at a time; with one, timings are not disturbed by others.
    sessions: int = 1
    #: Bytes of arrays in one message.
    message_bytes: int = 1 << 30
    #: Bytes of files in the folder of a session.
    folder_bytes: int = 4 << 30
    #: Bytes that a session may allocate; 0: as many as the system gives.
    memory_bytes: int = 0
    #: Seconds that one call may take.
    call_seconds: float = 300.0
    #: Seconds that a client may keep a session without a call.
    idle_seconds: float = 600.0

    def as_data(self) -> dict[str, Any]:
        return asdict(self)
