"""Code in the memory of a board, with memory for its calls; and its timing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tilewright.rpc.serial.memory import BoardPart
from tilewright.rpc.serial.monitor import Called
from tilewright.rpc.serial.placing import BoardImage
from tilewright.rpc.wire.errors import DeviceLostError
from tilewright.support.errors import UserError
from tilewright.support.memory import aligned
from tilewright.support.timing import Timing

if TYPE_CHECKING:
    from tilewright.rpc.serial.device import SerialDevice
    from tilewright.rpc.wire.channel import Progress


class BoardCode:
    """A function of an object file, and memory for it, kept as long as this object.

    In a new session of the board it is sent again.
    """

    def __init__(
        self,
        device: SerialDevice,
        code: bytes,
        function: str,
        sizes: Sequence[int],
        progress: Progress | None = None,
    ) -> None:
        self.device, self._function, self._sizes = device, function, sizes
        self._image, self._epoch = BoardImage(code), 0
        self.ready(progress)

    def ready(self, progress: Progress | None = None) -> bool:
        """Send it to the board if it is not there; gives whether it was sent."""
        self.device.require_open()
        if self._epoch == self.device.epoch:
            return False
        _require_machine(self.device, self._image.machine)
        self._place(progress)
        return True

    def _place(self, progress: Progress | None) -> None:
        size, offsets = self._image.size, list[int]()
        for part in self._sizes:
            offsets.append(aligned(size))
            size = offsets[-1] + part
        monitor = self.device.monitor
        self._part = BoardPart(self.device, size, "the code with its memory")
        base = self._part.begin
        data = self._image.placed(base)
        #: The address of the function, and those of the parts of memory.
        self.entry = self._image.address_of(self._function, base)
        self.places = [base + offset for offset in offsets]
        monitor.write(base, data, progress)
        monitor.clear(base + len(data), self._image.size - len(data))
        self._epoch = self.device.epoch

    def address_of(self, name: str) -> int:
        """The address of a symbol of the object file on the board."""
        return self._image.address_of(name, self._part.begin)

    def call(self, words: Sequence[int], seconds: float | None = None) -> Called:
        """Call the function with these words, with a time limit in seconds."""
        most = self.device.facts.argument_words
        if len(words) > most:
            raise UserError(
                f"the code cannot be called on {self.device.name}",
                reason=f"it takes {len(words)} arrays, and the monitor passes {most} words",
                remedy="link it into firmware of your own",
            )
        if self._epoch != self.device.epoch:
            raise DeviceLostError(
                f"the code is not on {self.device.name} any more",
                reason="another session has begun",
                remedy="call it again",
            )
        limit = self.device.seconds if seconds is None else seconds
        return self.device.monitor.call(self.entry, words, limit)


def _require_machine(device: SerialDevice, machine: int) -> None:
    if machine != device.facts.machine:
        raise UserError(
            f"the code cannot run on {device.name}",
            reason="it was compiled for another processor",
            remedy=f"compile it for {device.target!r}",
        )


def timed(
    calls: Sequence[Callable[[], Called]],
    clock: int,
    rounds: int,
    min_repeat_ms: float,
    warmup: int,
) -> list[Timing]:
    """Times of calls by the board's counter, interleaved: a sample of each in every round.

    A single call is as accurate as many; a sample has as many calls as fill `min_repeat_ms`.
    """
    for call in calls:
        for _ in range(warmup):
            call()
    counts = [
        max(1, -(-int(min_repeat_ms * clock / 1e3) // max(1, call().ticks))) for call in calls
    ]
    pairs = list(zip(calls, counts, strict=True))
    table = [
        [sum(call().ticks for _ in range(n)) / n / clock for call, n in pairs]
        for _ in range(max(1, rounds))
    ]
    columns = zip(*table, strict=True)
    return [Timing(samples, n) for samples, n in zip(columns, counts, strict=True)]
