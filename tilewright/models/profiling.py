"""Profiles of models: compiles a host program that records, and interprets its events.

That program is compiled from the same loops, and calls the same kernels; the model itself has no
overhead. `recording.py` runs it, here or on another machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from tilewright.codegen import EVENT_WORDS
from tilewright.kernels.cost import Cost, cost_of
from tilewright.runtime import Recording, recording_seal, seal_in
from tilewright.support.profile import Event, Profile

if TYPE_CHECKING:
    from tilewright.models.native import NativeModel


def recording_of(model: NativeModel) -> Recording:
    """A model's recording host program, compiled."""
    from tilewright.kernels.pipeline import host_code
    from tilewright.lower import lower_host

    program, target = model.program, model.target
    host = lower_host(model.ir(program.name), target)
    code = host_code(host, target, program.denormals, profiled=True)
    own = seal_in(program.objects[0])
    seal = b"" if own is None else recording_seal(own, EVENT_WORDS)
    return Recording(code.object_code(seal), EVENT_WORDS)


class Profiled:
    """A model with a recorder: its code, and the meaning of its events."""

    def __init__(self, model: NativeModel, recording: Recording) -> None:
        self._model = model
        self.code, self.words = recording.code, recording.words
        self._cost = cache(self._cost_of)

    def profile(self, runs: int, events: Any, copies: Sequence[Event] = ()) -> Profile:
        """The profile of `runs` runs from their events, with the copies between host and device."""
        return Profile(runs, tuple(self._event(words) for words in events.tolist()), tuple(copies))

    def _event(self, words: list[int]) -> Event:
        call, start, end, *numbers = words
        program = self._model.program
        origin = program.origins[call] if call < len(program.origins) else ""
        cost = self._cost(program.calls[call], tuple(numbers))
        return Event(program.calls[call], origin, start, end, *cost, tuple(numbers))

    def _cost_of(self, name: str, numbers: tuple[Any, ...]) -> Cost:
        return cost_of(self._model.ir(name), numbers)
