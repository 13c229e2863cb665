"""One run of a compiled model: what the code takes, and what it leaves."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from tilewright.runtime.arrays import Array
from tilewright.runtime.binding import Bound, NativeSpec, StoppedError, TensorSpec
from tilewright.runtime.device import Device
from tilewright.runtime.lists import copied_items
from tilewright.runtime.program import Program
from tilewright.runtime.scratch import Scratch
from tilewright.support.errors import UserError


class CallSizes(NamedTuple):
    """What follows from the shapes of the inputs."""

    dims: dict[str, int]
    #: The dimensions, in the order in which the code takes them.
    words: list[int]
    #: Bytes of memory for intermediate values.
    workspace: int
    #: The shapes of all outputs, where they are known by now.
    outputs: Sequence[Sequence[int]]


class ModelCall:
    """One run: its arrays, and the words that the code takes."""

    #: Addresses and dimensions that the code takes, before those of threads and of scratch memory.
    words: list[int]
    scratch: Scratch
    #: All words as bytes, and the threads that they name, by their address.
    packed: bytes
    pool: int | None = None

    def __init__(
        self,
        program: Program,
        inputs: Sequence[Bound],
        sizes: CallSizes,
        own: Sequence[Array | None],
        record: Array,
        release: Callable[[int], None] | None,
        device: Device,
    ) -> None:
        self._program, self._release, self._device = program, release, device
        self.record = record.copy() if program.records else record
        self.inputs = inputs
        self.direct: list[Array] = []
        #: Arrays of the processor's that are filled with outputs when these are there, by number.
        self.filled: dict[int, Array] = {}
        for k in program.direct:
            array, spec = own[k] if own else None, program.outputs[k]
            if isinstance(array, np.ndarray) and not device.is_here:
                self.filled[k], array = array, None
            if array is None:
                assert isinstance(spec, TensorSpec)
                array = _empty(device, spec, sizes.outputs[k])
            self.direct.append(array)

    def results(self) -> list[Any]:
        """All outputs in order."""
        if not self._program.records:
            return [
                self._given(k, a) for k, a in zip(self._program.direct, self.direct, strict=True)
            ]
        outputs, records = self._program.outputs, self._program.records
        made: list[Any] = [None] * len(outputs)
        for k, array in zip(self._program.direct, self.direct, strict=True):
            made[k] = self._given(k, array)
        handed_over: list[int] = self.record.tolist()
        try:
            for k, at in records.items():
                made[k] = self._copied(outputs[k], handed_over, at)
        finally:
            for k, at in records.items():
                self._give_back(outputs[k], handed_over[at])
        return made

    def _given(self, number: int, array: Any) -> Any:
        """An output, in the array that the caller has given for it."""
        if number not in self.filled:
            return array
        array.copy_to(self.filled[number])
        return self.filled[number]

    def _copied(self, spec: NativeSpec, handed_over: list[int], at: int) -> Any:
        """An output out of memory that the code returned."""
        address = handed_over[at]
        if isinstance(spec, TensorSpec):
            shape = handed_over[at + 1 : at + 1 + len(spec.shape)]
            return self._device.copied(address, shape, spec.numpy)
        if not address:
            return None
        items = copied_items(address, spec.dtype.numpy)
        return items[0] if spec.kind == "opt" else items

    def _give_back(self, spec: NativeSpec, address: int) -> None:
        if isinstance(spec, TensorSpec):
            self._device.free(address)
        elif self._release is not None:
            self._release(address)


def _empty(device: Device, spec: TensorSpec, shape: Sequence[int]) -> Array:
    if any(extent < 0 for extent in shape):
        raise StoppedError(
            "the model does not take inputs of these sizes",
            reason=f"output {spec.name} would be {spec.dtype.name}{list(shape)}",
        )
    try:
        return device.result(shape, spec.numpy)
    except (MemoryError, ValueError):
        size = math.prod(shape) * spec.numpy.itemsize
        raise UserError(
            f"there is no memory for output {spec.name}",
            reason=f"{spec.dtype.name}{list(shape)} takes {size} bytes",
        ) from None
