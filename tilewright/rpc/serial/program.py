"""The function of a model on a board, with memory for its tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tilewright.rpc.serial.code import BoardCode
from tilewright.rpc.serial.monitor import Called
from tilewright.runtime import Inputs, RunnableModel, Spec, TensorSpec, bind_inputs, in_order
from tilewright.support.errors import UserError

if TYPE_CHECKING:
    from tilewright.rpc.serial.device import SerialDevice
    from tilewright.rpc.wire.channel import Progress

Array = np.ndarray[Any, Any]

#: The prefix of a model's functions.
NAME: Final = "model"


class BoardProgram:
    """The object code of a model on a board, with its tensors."""

    def __init__(
        self,
        device: SerialDevice,
        model: RunnableModel,
        code: bytes,
        progress: Progress | None = None,
    ) -> None:
        self.device = device
        self.inputs, self.outputs = _tensors(model.inputs), _tensors(model.outputs)
        sizes = [_bytes_of(spec) for spec in (*self.inputs, *self.outputs)]
        self.code = BoardCode(device, code, f"{NAME}_run", sizes, progress)

    def send(self, inputs: Inputs) -> None:
        """Send the inputs to the board."""
        arrays, _ = bind_inputs(in_order(inputs, self.inputs), self.inputs)
        self.code.ready()
        for array, place in zip(arrays, self.code.places, strict=False):
            self.device.monitor.write(place, array.tobytes())

    def call(self) -> Called:
        """Run it on the inputs that were sent."""
        called = self.code.call(self.code.places)
        if called.value:
            reason = f"its code says {called.value}, of the messages in the header"
            raise UserError("the model stopped on the board", reason=reason)
        return called

    def results(self) -> list[Array]:
        """The outputs of the last call."""
        places = self.code.places[len(self.inputs) :]
        return [self._result(s, p) for s, p in zip(self.outputs, places, strict=True)]

    def _result(self, spec: TensorSpec, place: int) -> Array:
        raw = self.device.monitor.read(place, _bytes_of(spec))
        return np.frombuffer(bytearray(raw), spec.numpy).reshape(spec.static_shape or ())


def _tensors(specs: Sequence[Spec]) -> list[TensorSpec]:
    """The specs, all of which are tensors, as exporting has refused others."""
    return [spec for spec in specs if isinstance(spec, TensorSpec)]


def _bytes_of(spec: TensorSpec) -> int:
    size = spec.numpy.itemsize
    for extent in spec.static_shape or ():
        size *= extent
    return size
