"""A model in the memory of a board, with the interface of one that is here."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tilewright.rpc.client.distant import DistantModel
from tilewright.rpc.serial.code import BoardCode, timed
from tilewright.rpc.serial.device import SerialDevice
from tilewright.rpc.serial.monitor import Called
from tilewright.runtime import (
    Inputs,
    RunnableModel,
    Spec,
    TensorSpec,
    bind_inputs,
    bind_outputs,
    in_order,
)
from tilewright.support.errors import UserError
from tilewright.support.timing import Latencies, Timing

if TYPE_CHECKING:
    from tilewright.rpc.wire.channel import Progress

Array = np.ndarray[Any, Any]

_NAME: Final = "model"


class BoardModel(DistantModel):
    """A model on a board."""

    def __init__(
        self, device: SerialDevice, model: RunnableModel, progress: Progress | None
    ) -> None:
        super().__init__()
        self._local = model
        code = _object_of(model)
        self._inputs, self._outputs = _tensors(self.inputs), _tensors(self.outputs)
        sizes = [_bytes_of(spec) for spec in (*self._inputs, *self._outputs)]
        self._code = BoardCode(device, code, f"{_NAME}_run", sizes, progress)

    # ---- running --------------------------------------------------------------------------------

    def outputs_for(self, inputs: Inputs, out: Inputs) -> list[Any]:
        self._send(inputs)
        own = bind_outputs(out, self._outputs, {}, ()) if len(out) else [None] * len(self._outputs)
        self._call()
        results = [self._result(k) for k in range(len(self._outputs))]
        return [_written(made, array) for made, array in zip(results, own, strict=True)]

    def time(
        self, inputs: Inputs, repeat: int = 20, min_repeat_ms: float = 0.0, warmup: int = 2
    ) -> Timing:
        """Time the model by the board's counter: one call is as exact as many."""
        self._send(inputs)
        return timed([self._call], self.device.facts.clock, repeat, min_repeat_ms, warmup)[0]

    def benchmark(self, inputs: Inputs, *, seconds: float = 1.0, warmup: int = 3) -> Latencies:
        """How long single runs on the board take, by its counter: as many as take `seconds`."""
        once = self.time(inputs, repeat=1, warmup=warmup).median
        count = max(10, min(1000, int(seconds / once) if once else 1000))
        return Latencies(self.time(inputs, repeat=count, warmup=0).samples)

    def ticks(self, inputs: Inputs) -> int:
        """What the board's counter counts in one run: cycles, where it counts these."""
        self._send(inputs)
        return self._call().ticks

    def _send(self, inputs: Inputs) -> None:
        self.device.require_open()
        arrays, _ = bind_inputs(in_order(inputs, self._inputs), self._inputs)
        for array, place in zip(arrays, self._code.places, strict=False):
            self.device.monitor.write(place, array.tobytes())

    def _call(self) -> Called:
        called = self._code.call(self._code.places)
        if called.value:
            reason = f"its code says {called.value}, of the messages in the header"
            raise UserError("the model stopped on the board", reason=reason)
        return called

    def _result(self, number: int) -> Array:
        spec, place = self._outputs[number], self._code.places[len(self._inputs) + number]
        raw = self.device.monitor.read(place, _bytes_of(spec))
        return np.frombuffer(bytearray(raw), spec.numpy).reshape(spec.static_shape or ())

    # ---- looking --------------------------------------------------------------------------------

    @property
    def device(self) -> SerialDevice:
        """The board that it runs on."""
        return self._code.device

    @property
    def entry(self) -> int:
        """Where the function lies that is called."""
        return self._code.entry


def _object_of(model: RunnableModel) -> bytes:
    """The object file that firmware would be linked with."""
    with tempfile.TemporaryDirectory(prefix="tilewright-") as folder:
        model.export_micro(folder, name=_NAME)
        return Path(folder, f"{_NAME}.o").read_bytes()


def _tensors(specs: Sequence[Spec]) -> list[TensorSpec]:
    """Exporting has refused all others."""
    return [spec for spec in specs if isinstance(spec, TensorSpec)]


def _bytes_of(spec: TensorSpec) -> int:
    size = spec.numpy.itemsize
    for extent in spec.static_shape or ():
        size *= extent
    return size


def _written(made: Array, own: Array | None) -> Array:
    if own is None:
        return made
    own[...] = made
    return own
