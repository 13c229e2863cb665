"""A board that is Python: the monitor's side of the protocol, behind a line with noise."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from tilewright.rpc.serial.frames import Frame, FrameReader, Kind, framed

WINDOW, WINDOW_BYTES, BODY_BYTES, CLOCK = 0x2000_0000, 1 << 16, 64, 1_000_000
#: What a line does to a piece of bytes.
Noise = Callable[[bytes], bytes]


def _plain(data: bytes) -> bytes:
    return data


@dataclass
class FakeBoard:
    """A stream whose other end answers at once; `to_board` and `to_host` are what the line does."""

    to_board: Noise = _plain
    to_host: Noise = _plain
    version: int = 1
    machine: int = 40
    is_cut: bool = False
    #: How often a function was called.
    calls: int = 0
    memory: bytearray = field(default_factory=lambda: bytearray(WINDOW_BYTES))
    _reader: FrameReader = field(default_factory=FrameReader)
    _waiting: bytearray = field(default_factory=bytearray)
    _session: int = 0
    _last: tuple[Frame, Frame] | None = None

    # ---- a stream -------------------------------------------------------------------------------

    def receive(self, seconds: float) -> bytes:
        if self.is_cut:
            raise OSError(5, "the line was cut")
        if not self._waiting:
            time.sleep(min(seconds, 0.001))
        data = bytes(self._waiting)
        self._waiting.clear()
        return data

    def send(self, data: bytes, seconds: float) -> None:
        del seconds
        if self.is_cut:
            raise OSError(5, "the line was cut")
        for frame in self._reader.read(self.to_board(data)):
            if self._last is None or self._last[0] != frame:
                self._last = frame, self._answered(frame)
            self.tell(self._last[1])

    def close(self) -> None:
        self.is_cut = True

    def tell(self, frame: Frame) -> None:
        self._waiting += self.to_host(framed(frame))

    def reset(self) -> None:
        """The board starts anew, with nothing of what was in its memory."""
        self._session, self.memory = 0, bytearray(b"\xee" * WINDOW_BYTES)

    # ---- the monitor ----------------------------------------------------------------------------

    def _answered(self, asked: Frame) -> Frame:
        reason, body = self._done(asked)
        kind = Kind.REFUSAL if reason else asked.kind | Kind.ANSWER
        told = struct.pack("<I", reason) + body if reason else body
        return Frame(kind, asked.number, asked.session, told)

    def _done(self, asked: Frame) -> tuple[int, bytes]:
        if asked.kind == Kind.HELLO:
            self._session = asked.session
            head = (b"#TWM", self.version, self.machine, WINDOW, WINDOW_BYTES)
            return 0, struct.pack("<4sHHIIHHI", *head, BODY_BYTES, 16, CLOCK) + b"cortex-m4 fake"
        if asked.session != self._session:
            return 6, b""
        if asked.kind == Kind.COUNTER:
            return 1, b""
        address = struct.unpack_from("<I", asked.body)[0] - WINDOW
        if not 0 <= address <= WINDOW_BYTES:
            return 3, b""
        if asked.kind == Kind.WRITE:
            self.memory[address : address + len(asked.body) - 4] = asked.body[4:]
            return 0, b""
        if asked.kind == Kind.CALL:
            return self._called(asked, address)
        size = struct.unpack_from("<I", asked.body, 4)[0]
        if asked.kind == Kind.READ:
            return 0, bytes(self.memory[address : address + size])
        self.memory[address : address + size] = bytes(size)
        return 0, b""

    def _called(self, asked: Frame, entry: int) -> tuple[int, bytes]:
        """What the first byte of the code says: return so much, or 0xff: fault."""
        self.calls += 1
        self.tell(Frame(Kind.AT_WORK, asked.number, asked.session, b""))
        if self.memory[entry] == 0xFF:
            return 4, struct.pack("<III", 0x10000, WINDOW + entry, 0)
        return 0, struct.pack("<iQ", self.memory[entry], 1234)
