"""Records the start and end of kernels in a model on a board."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tilewright.models.native import NativeModel
from tilewright.models.recording import counted_runs
from tilewright.rpc.serial.memory import BoardPart
from tilewright.rpc.serial.program import NAME, BoardProgram
from tilewright.runtime import Inputs

if TYPE_CHECKING:
    from tilewright.rpc.serial.device import SerialDevice

Events = np.ndarray[Any, np.dtype[np.int64]]

#: The state of a recording program: address of the events, their capacity, their number, and the
#: function that reads the clock.
_STATE: Final = struct.Struct("<QQQQ")


def recorded_events(
    device: SerialDevice, model: NativeModel, inputs: Inputs, runs: int, warmup: int
) -> Events:
    """The events of `runs` single runs, one per row, with times in nanoseconds."""
    runs, warmup = counted_runs(runs, warmup)
    device.require_open()
    counter = device.monitor.counter()
    program = BoardProgram(device, model, model.recording_object(NAME))
    state = program.code.address_of(f"{model.program.name}.profile")
    program.send(inputs)
    for _ in range(warmup):
        device.monitor.write(state, _STATE.pack(0, 0, 0, counter))
        program.call()
    count, words = _STATE.unpack(device.monitor.read(state, _STATE.size))[2], model.profiled.words
    room = BoardPart(device, 8 * words * count, "the record of a run")
    found, end = list[Events](), 0
    for _ in range(runs):
        device.monitor.write(state, _STATE.pack(room.begin, count, 0, counter))
        program.call()
        raw = device.monitor.read(room.begin, 8 * words * count)
        events = np.frombuffer(raw, np.int64).reshape(count, words).copy()
        events[:, 1:3] = end + _nanoseconds(events[:, 1:3], device.facts.clock)
        found.append(events)
        end = int(events[:, 2].max(initial=end))
    return np.concatenate(found)


def _nanoseconds(ticks: Events, clock: int) -> Events:
    """Ticks as nanoseconds since the first event."""
    start = ticks.min() if ticks.size else 0
    return np.rint((ticks - start) * (1e9 / clock)).astype(np.int64)
