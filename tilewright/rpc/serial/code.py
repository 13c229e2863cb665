"""Code in the memory of a board, with the memory that it is called with; and how long it takes."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tilewright.rpc.serial.monitor import Called
from tilewright.rpc.serial.placing import BoardImage
from tilewright.support.errors import UserError
from tilewright.support.memory import aligned
from tilewright.support.timing import Timing

if TYPE_CHECKING:
    from tilewright.rpc.serial.device import SerialDevice
    from tilewright.rpc.wire.channel import Progress


class BoardCode:
    """A function of an object file, and memory beside it, for as long as somebody refers to it."""

    def __init__(
        self,
        device: SerialDevice,
        code: bytes,
        function: str,
        sizes: Sequence[int],
        progress: Progress | None = None,
    ) -> None:
        device.require_open()
        self.device, image = device, BoardImage(code)
        _require_machine(device, image.machine)
        size, offsets = image.size, list[int]()
        for part in sizes:
            offsets.append(aligned(size))
            size = offsets[-1] + part
        base = device.memory.take(size, "the code with its memory")
        weakref.finalize(self, device.unused.append, base)
        placed = image.placed(base, function)
        #: Where the function lies, and where the parts of memory do.
        self.entry, self.places = placed.entry, [base + offset for offset in offsets]
        device.monitor.write(base, placed.data, progress)
        device.monitor.clear(base + len(placed.data), placed.zeros)

    def call(self, words: Sequence[int]) -> Called:
        """Call the function with these words."""
        self.device.require_open()
        most = self.device.facts.argument_words
        if len(words) > most:
            raise UserError(
                f"the code cannot be called on {self.device.name}",
                reason=f"it takes {len(words)} arrays, and the monitor passes {most} words",
                remedy="link it into firmware of your own",
            )
        return self.device.monitor.call(self.entry, words, self.device.seconds)


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

    One call is as exact as many; a sample is as many as last `min_repeat_ms`.
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
