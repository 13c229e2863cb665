"""Runs a model with a host program that records when its kernels begin and end.

The program is made again for the purpose, from the same loops, and calls the very same kernels; the
model itself carries no trace of it.
"""

from __future__ import annotations

import ctypes
from dataclasses import replace
from functools import cache
from numbers import Integral
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.codegen import EVENT_WORDS
from tilewright.kernels.cost import Cost, cost_of
from tilewright.runtime import CompiledModel, Inputs, Program
from tilewright.support.errors import UserError
from tilewright.support.profile import Event, Profile

if TYPE_CHECKING:
    from tilewright.models.native import NativeModel


class Profiled:
    """A model whose runs are recorded."""

    def __init__(self, model: NativeModel, program: Program) -> None:
        self._model, self._program = model, program
        self._recorded = self._recording()
        address = self._recorded.address(f"{program.name}.profile")
        #: Where events go, how many fit, how many there were.
        self._state = (ctypes.c_int64 * 3).from_address(address)
        self._cost = cache(self._cost_of)

    def _recording(self) -> CompiledModel:
        from tilewright.kernels.pipeline import host_code
        from tilewright.lower import lower_host

        program, target = self._program, self._model.target
        host = lower_host(self._model.ir(program.name), target)
        code = host_code(host, target, program.denormals, profiled=True).object_code()
        return self._model.with_program(replace(program, objects=(code, *program.objects[1:])))

    def profile(self, inputs: Inputs, runs: int, warmup: int) -> Profile:
        """The calls of all kernels in `runs` runs, after others that are not looked at."""
        if not isinstance(runs, Integral) or int(runs) < 1:
            raise UserError(f"cannot profile {runs!r} runs", remedy="ask for at least one")
        if not isinstance(warmup, Integral):
            raise UserError(f"cannot warm up by {warmup!r} runs", remedy="give a whole number")
        self._recorded.share_threads(self._model)
        with self._recorded.device.one_by_one():
            return self._profiled(inputs, runs, warmup)

    def _profiled(self, inputs: Inputs, runs: int, warmup: int) -> Profile:
        for _ in range(max(1, warmup)):
            self._state[:] = [0, 0, 0]
            self._recorded.run(inputs)
        room = self._state[2]
        events = np.zeros((runs * room, EVENT_WORDS), np.int64)
        self._state[:] = [events.ctypes.data, len(events), 0]
        try:
            for _ in range(runs):
                self._recorded.run(inputs)
            count = min(self._state[2], len(events))
        finally:
            self._state[:] = [0, 0, 0]
        return Profile(runs, tuple(self._event(words) for words in events[:count].tolist()))

    def _event(self, words: list[int]) -> Event:
        call, start, end, *numbers = words
        name = self._program.calls[call]
        origins = self._program.origins
        origin = origins[call] if call < len(origins) else ""
        cost = self._cost(name, tuple(numbers))
        return Event(name, origin, start, end, *cost)

    def _cost_of(self, name: str, numbers: tuple[Any, ...]) -> Cost:
        return cost_of(self._model.ir(name), numbers)
