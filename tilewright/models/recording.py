"""Runs a model whose host program records the start and end of its kernels.

No compiler is needed here: the code of that program is given, so that a device without a compiler
can record as well.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Sequence
from dataclasses import replace
from numbers import Integral
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.runtime import BACK, TO_DEVICE, Inputs, LaunchTime
from tilewright.support.errors import UserError
from tilewright.support.profile import Event

if TYPE_CHECKING:
    from tilewright.models.native import NativeModel


#: The words of an event with its start and end, by `time.monotonic_ns`.
_START, _END = 1, 2


class Recorder:
    """A model with a recording host program; an event has `words` words."""

    def __init__(self, model: NativeModel, code: bytes, words: int) -> None:
        program = model.program
        self._model, self._words = model, words
        self._recorded = model.with_program(replace(program, objects=(code, *program.objects[1:])))
        address = self._recorded.address(f"{program.name}.profile")
        #: The copies of the last recorded runs.
        self.copies: list[Event] = []
        #: The address of the events, their capacity, and their number.
        self._state = (ctypes.c_int64 * 3).from_address(address)

    def record(self, inputs: Inputs, runs: int, warmup: int) -> np.ndarray[Any, np.dtype[np.int64]]:
        """The events of `runs` runs, one per row, after `warmup` other runs."""
        runs, warmup = counted_runs(runs, warmup)
        self._recorded.share_threads(self._model)
        with self._recorded.device.one_by_one() as launches:
            found = _by_launches(self._recorded_runs(inputs, runs, warmup), launches)
        self.copies = self._copies([n for n in launches if n.copied and n.at >= self._begin])
        return found

    def _copies(self, launches: Sequence[LaunchTime]) -> list[Event]:
        """The copies between host and device that the device has timed."""
        crossed = self._recorded.copied
        names = {TO_DEVICE: crossed.inputs, BACK: crossed.outputs}
        return [
            Event(f"copy {way}", ", ".join(names[way]), at, at + took, 0, size)
            for at, took, copied in launches
            for way, size in [copied or (TO_DEVICE, 0)]
        ]

    def _recorded_runs(self, inputs: Inputs, runs: int, warmup: int) -> Any:
        for _ in range(warmup):
            self._state[:] = [0, 0, 0]
            self._recorded.run(inputs)
        room = self._state[2]
        events = np.zeros((runs * room, self._words), np.int64)
        self._begin = time.monotonic_ns()
        self._state[:] = [events.ctypes.data, len(events), 0]
        try:
            for _ in range(runs):
                self._recorded.run(inputs)
            count = min(self._state[2], len(events))
        finally:
            self._state[:] = [0, 0, 0]
        return events[:count]


def _by_launches(events: Any, launches: Sequence[LaunchTime]) -> Any:
    """The events, with the duration of their launches where the device has timed them."""
    launches = [n for n in launches if n.copied is None]
    if not launches or not len(events):
        return events
    starts, took = events[:, _START], np.zeros(len(events), np.int64)
    at = np.array([launch.at for launch in launches])
    found = np.searchsorted(starts, at, "right") - 1
    inside = (found >= 0) & (at <= events[found, _END])
    np.add.at(took, found[inside], np.array([n.nanoseconds for n in launches])[inside])
    events[:, _END] = np.where(took > 0, starts + took, events[:, _END])
    return events


def counted_runs(runs: int, warmup: int) -> tuple[int, int]:
    """The runs to record; and warm-up runs, at least one, which determines the number of events."""
    if not isinstance(runs, Integral) or int(runs) < 1:
        raise UserError(f"cannot profile {runs!r} runs", remedy="ask for at least one")
    if not isinstance(warmup, Integral):
        raise UserError(f"cannot warm up by {warmup!r} runs", remedy="give a whole number")
    return int(runs), max(1, int(warmup))
