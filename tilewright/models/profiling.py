"""Profiles of models: a host program that records, and what its records mean.

The program is made again for the purpose, from the same loops, and calls the very same kernels; the
model itself carries no trace of it. `recording.py` runs it, here or on another machine.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from tilewright.codegen import EVENT_WORDS
from tilewright.kernels.cost import Cost, cost_of
from tilewright.support.profile import Event, Profile

if TYPE_CHECKING:
    from tilewright.models.native import NativeModel


def recording_code(model: NativeModel) -> bytes:
    """The object code of a model's host program with a recorder in it."""
    from tilewright.kernels.pipeline import host_code
    from tilewright.lower import lower_host

    program, target = model.program, model.target
    host = lower_host(model.ir(program.name), target)
    return host_code(host, target, program.denormals, profiled=True).object_code()


class Profiled:
    """A model whose runs are recorded: what records it takes, and what they mean."""

    def __init__(self, model: NativeModel) -> None:
        self._model = model
        self.code, self.words = recording_code(model), EVENT_WORDS
        self._cost = cache(self._cost_of)

    def profile(self, runs: int, events: Any) -> Profile:
        """What the events of so many runs say."""
        return Profile(runs, tuple(self._event(words) for words in events.tolist()))

    def _event(self, words: list[int]) -> Event:
        call, start, end, *numbers = words
        program = self._model.program
        origin = program.origins[call] if call < len(program.origins) else ""
        cost = self._cost(program.calls[call], tuple(numbers))
        return Event(program.calls[call], origin, start, end, *cost, tuple(numbers))

    def _cost_of(self, name: str, numbers: tuple[Any, ...]) -> Cost:
        return cost_of(self._model.ir(name), numbers)
