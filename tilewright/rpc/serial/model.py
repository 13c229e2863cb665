"""A model in the memory of a board, with the interface of one that is here."""

from __future__ import annotations

import tempfile
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tilewright.rpc.serial.device import SerialDevice
from tilewright.rpc.serial.monitor import Called
from tilewright.rpc.serial.placing import BoardImage
from tilewright.runtime import (
    Build,
    Inputs,
    RunnableModel,
    Spec,
    TensorSpec,
    bind_inputs,
    bind_outputs,
    in_order,
)
from tilewright.support.denormals import Denormals
from tilewright.support.errors import UserError
from tilewright.support.memory import aligned
from tilewright.support.timing import Latencies, Timing

if TYPE_CHECKING:
    from tilewright.rpc.wire.channel import Progress

Array = np.ndarray[Any, Any]

_NAME: Final = "model"


class BoardModel(RunnableModel):
    """A model on a board; what can be looked at is looked at here."""

    def __init__(
        self, device: SerialDevice, model: RunnableModel, progress: Progress | None
    ) -> None:
        super().__init__()
        device.require_open()
        self._device, self._local = device, model
        image = BoardImage(_object_of(self._local))
        self._inputs, self._outputs = _tensors(self.inputs), _tensors(self.outputs)
        self._require_fit(image)
        base = device.memory.take(self._laid_out(image.size), "the model")
        weakref.finalize(self, device.unused.append, base)
        self._base, placed = base, image.placed(base, f"{_NAME}_run")
        #: Where the function lies that is called.
        self.entry = placed.entry
        device.monitor.write(base, placed.data, progress)
        device.monitor.clear(base + len(placed.data), placed.zeros)

    def _require_fit(self, image: BoardImage) -> None:
        facts, count = self._device.facts, len(self._inputs) + len(self._outputs)
        if image.machine != facts.machine:
            raise UserError(
                f"the model cannot run on {self._device.name}",
                reason="it was compiled for another processor",
                remedy=f"compile it for {self._device.target!r}",
            )
        if count > facts.argument_words:
            raise UserError(
                f"the model cannot run on {self._device.name}",
                reason=f"it has {count} inputs and outputs, and the monitor calls functions with"
                f" {facts.argument_words} words",
                remedy="link it into firmware of your own",
            )

    def _laid_out(self, size: int) -> int:
        """The bytes of the image with its tensors; where these lie behind its begin."""
        self._offsets = list[int]()
        for spec in (*self._inputs, *self._outputs):
            self._offsets.append(aligned(size))
            size = self._offsets[-1] + _bytes_of(spec)
        return size

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
        """Time the model on the board, by its counter: one call is as exact as many.

        A sample is as many calls as last `min_repeat_ms`, as elsewhere.
        """
        self._send(inputs)
        for _ in range(max(0, warmup)):
            self._call()
        clock, first = self._device.facts.clock, self._call().ticks
        calls = max(1, -(-int(min_repeat_ms * clock / 1e3) // max(1, first)))
        totals = [sum(self._call().ticks for _ in range(calls)) for _ in range(max(1, repeat))]
        return Timing(tuple(total / calls / clock for total in totals), calls)

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
        self._device.require_open()
        arrays, _ = bind_inputs(in_order(inputs, self._inputs), self._inputs)
        for array, offset in zip(arrays, self._offsets, strict=False):
            self._device.monitor.write(self._base + offset, array.tobytes())

    def _call(self) -> Called:
        device, words = self._device, [self._base + offset for offset in self._offsets]
        called = device.monitor.call(self.entry, words, device.seconds)
        if called.value:
            reason = f"its code says {called.value}, of the messages in the header"
            raise UserError("the model stopped on the board", reason=reason)
        return called

    def _result(self, number: int) -> Array:
        spec = self._outputs[number]
        offset = self._offsets[len(self._inputs) + number]
        raw = self._device.monitor.read(self._base + offset, _bytes_of(spec))
        return np.frombuffer(bytearray(raw), spec.numpy).reshape(spec.static_shape or ())

    # ---- looking --------------------------------------------------------------------------------

    @property
    def device(self) -> SerialDevice:
        """The board that it runs on."""
        return self._device

    @property
    def inputs(self) -> tuple[Spec, ...]:
        return self._local.inputs

    @property
    def outputs(self) -> tuple[Spec, ...]:
        return self._local.outputs

    @property
    def precision(self) -> str:
        return self._local.precision

    @property
    def denormals(self) -> Denormals:
        return self._local.denormals

    @property
    def texts(self) -> Mapping[str, str]:
        return self._local.texts

    @property
    def kernels(self) -> tuple[str, ...]:
        return self._local.kernels

    def as_build(self) -> Build:
        return self._local.as_build()


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
