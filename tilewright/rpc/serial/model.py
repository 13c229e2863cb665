"""A model in the memory of a board, with the interface of a local one."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.models.native import NativeModel
from tilewright.rpc.client.distant import DistantModel
from tilewright.rpc.serial.code import timed
from tilewright.rpc.serial.device import SerialDevice
from tilewright.rpc.serial.program import NAME, BoardProgram
from tilewright.rpc.serial.recording import recorded_events
from tilewright.runtime import Inputs, RunnableModel, bind_outputs
from tilewright.support.timing import Latencies, Timing

if TYPE_CHECKING:
    from tilewright.rpc.wire.channel import Progress
    from tilewright.support.profile import Profile

Array = np.ndarray[Any, Any]


class BoardModel(DistantModel):
    """A model on a board."""

    def __init__(
        self, device: SerialDevice, model: RunnableModel, progress: Progress | None
    ) -> None:
        super().__init__()
        self._local = model
        self._program = BoardProgram(device, model, _object_of(model), progress)

    # ---- running --------------------------------------------------------------------------------

    def outputs_for(self, inputs: Inputs, out: Inputs) -> list[Any]:
        program, specs = self._program, self._program.outputs
        program.send(inputs)
        own = bind_outputs(out, specs, {}, ()) if len(out) else [None] * len(specs)
        program.call()
        return [_written(m, a) for m, a in zip(program.results(), own, strict=True)]

    def time(
        self, inputs: Inputs, repeat: int = 20, min_repeat_ms: float = 0.0, warmup: int = 2
    ) -> Timing:
        """Time the model by the board's counter: a single call is as accurate as many."""
        program = self._program
        program.send(inputs)
        return timed([program.call], self.device.facts.clock, repeat, min_repeat_ms, warmup)[0]

    def benchmark(self, inputs: Inputs, *, seconds: float = 1.0, warmup: int = 3) -> Latencies:
        """The latency of single runs on the board, by its counter: as many as fill `seconds`."""
        once = self.time(inputs, repeat=1, warmup=warmup).median
        count = max(10, min(1000, int(seconds / once) if once else 1000))
        return Latencies(self.time(inputs, repeat=count, warmup=0).samples)

    def ticks(self, inputs: Inputs) -> int:
        """The ticks of the board's counter in one run: cycles, if it counts these."""
        self._program.send(inputs)
        return self._program.call().ticks

    def profile_of(self, inputs: Inputs, runs: int, warmup: int) -> Profile:
        """While it is profiled, the board needs memory for a second copy of the model."""
        if not isinstance(self._local, NativeModel):
            raise self._not_offered("be profiled")
        events = recorded_events(self.device, self._local, inputs, runs, warmup)
        return self._local.profiled.profile(int(runs), events)

    # ---- inspection ------------------------------------------------------------------------------

    @property
    def device(self) -> SerialDevice:
        """The board it runs on."""
        return self._program.device

    @property
    def entry(self) -> int:
        """The address of its function."""
        return self._program.code.entry


def _object_of(model: RunnableModel) -> bytes:
    """The object file that firmware would be linked with."""
    with tempfile.TemporaryDirectory(prefix="tilewright-") as folder:
        model.export_micro(folder, name=NAME)
        return Path(folder, f"{NAME}.o").read_bytes()


def _written(made: Array, own: Array | None) -> Array:
    if own is None:
        return made
    own[...] = made
    return own
