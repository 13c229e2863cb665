"""Requests to the monitor of a board, and its answers.

A request without an answer is sent again with the same number: the monitor does not repeat it, but
sends the same answer again. After some attempts the board counts as lost.
"""

from __future__ import annotations

import random
import struct
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

from tilewright.rpc.serial.frames import Frame, FrameReader, Kind, framed
from tilewright.rpc.serial.lines import Stream
from tilewright.rpc.wire.channel import Progress
from tilewright.rpc.wire.errors import DeviceLostError, UnreachableError
from tilewright.runtime import TrialError
from tilewright.support.errors import UserError

#: The protocol's version.
VERSION: Final = 1
_MAGIC: Final = b"#TWM"
_HELLO: Final = struct.Struct("<4sHHIIHHI")
_WORDS: Final = struct.Struct("<II")
_CALLED: Final = struct.Struct("<iQ")
_TRIES: Final = 4
#: The codes of refusals.
_UNKNOWN_KIND, _WRONG_LENGTH, _OUTSIDE, _FAULT, _TOO_LONG, _OTHER_SESSION = range(1, 7)
_REFUSALS: Final = {
    _UNKNOWN_KIND: "it does not know the request",
    _WRONG_LENGTH: "the request is of a wrong length",
    _OUTSIDE: "it is about memory outside of the window for hosts",
}
_FLASH: Final = "flash the monitor of this version: tilewright.device_runtime.build_monitor"


@dataclass(frozen=True)
class Facts:
    """The monitor's description of its board."""

    #: The machine number in ELF files.
    machine: int
    #: The address and size of the memory that hosts may use.
    window: int
    window_bytes: int
    #: Most bytes of a body, and most words of a call.
    body_bytes: int
    argument_words: int
    #: Ticks of the counter per second.
    clock: int
    processor: str
    board: str


class Called(NamedTuple):
    """A function's return value, and its duration in ticks."""

    value: int
    ticks: int


class CallEndedError(TrialError):
    """The board has ended a call that faulted or took too long. The session continues."""

    kind: Literal["crash", "time-out"] = "crash"

    @property
    def failure(self) -> Literal["crash", "time-out"]:
        return self.kind


class Monitor:
    """The monitor at the other end of a line; handles one request at a time."""

    facts: Facts

    def __init__(self, stream: Stream, name: str, baud: int, patience: float) -> None:
        self._stream, self.name, self._baud, self._patience = stream, name, baud, patience
        self._reader, self._lock = FrameReader(), threading.RLock()
        self.begin_session()

    def begin_session(self) -> None:
        """Begin a session: the board refuses requests of earlier ones."""
        # A random number, as a board that was reset or taken over has another session.
        self._session, self._number = random.randrange(1, 1 << 32), 0
        self.facts = self._hello()

    def write(self, address: int, data: bytes, progress: Progress | None = None) -> None:
        """Write bytes to the board's memory."""
        step = self.facts.body_bytes - 4
        for begin in range(0, len(data), step):
            piece = data[begin : begin + step]
            self._asked(Kind.WRITE, (address + begin).to_bytes(4, "little") + piece)
            if progress is not None:
                progress(begin + len(piece), len(data))

    def read(self, address: int, size: int) -> bytes:
        """Read bytes of the board's memory."""
        parts, step = list[bytes](), self.facts.body_bytes
        for begin in range(0, size, step):
            count = min(step, size - begin)
            part = self._asked(Kind.READ, _WORDS.pack(address + begin, count), count)
            if len(part) != count:
                raise self._lost("it sent bytes that were not asked for")
            parts.append(part)
        return b"".join(parts)

    def clear(self, address: int, size: int) -> None:
        """Zero a part of the board's memory."""
        if size:
            self._asked(Kind.CLEAR, _WORDS.pack(address, size))

    def call(self, entry: int, words: Sequence[int], seconds: float) -> Called:
        """Call a function in the board's memory, with a time limit in seconds."""
        limit = min((1 << 64) - 1, int(seconds * self.facts.clock))
        body = struct.pack(f"<IQ{len(words)}I", entry, limit, *words)
        answer = self._asked(Kind.CALL, body, seconds=seconds)
        if len(answer) != _CALLED.size:
            raise self._lost("its answer makes no sense")
        return Called(*_CALLED.unpack(answer))

    def counter(self) -> int:
        """The address of the board's function that reads its counter."""
        answer = self._asked(Kind.COUNTER, b"")
        if len(answer) != 4:
            raise self._lost("its answer makes no sense")
        return int.from_bytes(answer, "little")

    def ping(self) -> None:
        """A request without effect."""
        self._asked(Kind.READ, _WORDS.pack(self.facts.window, 0))

    def close(self) -> None:
        with self._lock:
            self._stream.close()

    # ---- opening ---------------------------------------------------------------------------------

    def _hello(self) -> Facts:
        try:
            answer = self._asked(Kind.HELLO, b"")
        except DeviceLostError as error:
            raise UnreachableError(
                f"no board answers on {self.name}",
                reason=error.reason,
                remedy="see that the board runs the monitor (tilewright.device_runtime."
                "build_monitor), and that the speed of the line is its own",
            ) from None
        if len(answer) < 6 or not answer.startswith(_MAGIC):
            raise self._unfit("it is no monitor of Tilewright")
        version = int.from_bytes(answer[4:6], "little")
        if version != VERSION:
            raise self._unfit(f"its monitor speaks version {version}, and here it is {VERSION}")
        return self._facts(answer)

    def _facts(self, answer: bytes) -> Facts:
        if len(answer) < _HELLO.size:
            raise self._unfit("what it says of itself is cut short")
        _, _, machine, window, size, body, words, clock = _HELLO.unpack_from(answer)
        text = answer[_HELLO.size :].decode("ascii", "replace")
        processor, _, board = text.partition(" ")
        if body < 16 or not clock or not processor or window + size > 1 << 32:
            raise self._unfit("what it says of itself makes no sense")
        return Facts(machine, window, size, body, words, clock, processor, board)

    def _unfit(self, reason: str) -> UserError:
        return UserError(f"cannot use the board on {self.name}", reason=reason, remedy=_FLASH)

    # ---- one request ----------------------------------------------------------------------------

    def _asked(self, kind: Kind, body: bytes, more: int = 0, seconds: float = 0.0) -> bytes:
        """The body of the answer, for which `more` bytes and `seconds` are allowed."""
        with self._lock:
            self._number = (self._number + 1) % (1 << 16)
            data = framed(Frame(kind, self._number, self._session, body))
            wait = self._patience + 2 * 10 * (len(data) + more) / self._baud
            try:
                for _ in range(_TRIES):
                    self._stream.send(data, wait)
                    answer = self._answer(kind, wait, seconds)
                    if answer is not None:
                        return self._checked(answer)
            except (OSError, ValueError) as error:
                reason = getattr(error, "strerror", None) or str(error)
                raise self._lost(reason) from None
            raise self._lost(f"it gives no sign of life, after {_TRIES} tries")

    def _answer(self, kind: Kind, wait: float, seconds: float) -> Frame | None:
        """The answer to the last request; None if it does not arrive in time."""
        end, answers = time.monotonic() + wait, (kind | Kind.ANSWER, Kind.REFUSAL)
        while (left := end - time.monotonic()) > 0:
            for frame in self._reader.read(self._stream.receive(left)):
                if (frame.number, frame.session) != (self._number, self._session):
                    continue
                if frame.kind in answers:
                    return frame
                if frame.kind == Kind.AT_WORK:
                    end = time.monotonic() + seconds + wait
        return None

    def _checked(self, answer: Frame) -> bytes:
        if answer.kind != Kind.REFUSAL:
            return answer.body
        words = [*struct.unpack(f"<{len(answer.body) // 4}I", answer.body[: len(answer.body) & ~3])]
        reason, cause, place, address = (words + [0] * 4)[:4]
        if reason == _FAULT:
            raise self._ended(
                "crash",
                f"the processor faulted at {place:#010x}: status {cause:#x}, address {address:#x}",
            )
        if reason == _OTHER_SESSION:
            raise self._lost("it was reset, or another host has taken it over")
        if reason == _TOO_LONG:
            raise self._ended("time-out", f"it took too long, and was ended at {place:#010x}")
        raise UserError(
            f"the board on {self.name} cannot do it",
            reason=_REFUSALS.get(reason, f"it says {reason}"),
            remedy=_FLASH if reason == _UNKNOWN_KIND else "",
        )

    def _ended(self, kind: Literal["crash", "time-out"], reason: str) -> CallEndedError:
        error = CallEndedError(f"the board on {self.name} cannot do it", reason=reason)
        error.kind = kind
        return error

    def _lost(self, reason: Any) -> DeviceLostError:
        return DeviceLostError(
            f"the board on {self.name} is lost",
            reason=str(reason),
            remedy="see to the line, reset the board, and connect again",
        )
