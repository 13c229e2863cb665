"""A kernel in the memory of a board, with the interface of a local one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.rpc.serial.code import timed
from tilewright.rpc.serial.function import BoardFunction, bytes_of_param
from tilewright.rpc.serial.monitor import Called
from tilewright.runtime import ArrayParam, KernelCode
from tilewright.support.errors import UserError
from tilewright.support.timing import Timing

if TYPE_CHECKING:
    from tilewright.rpc.serial.device import SerialDevice


class BoardKernel:
    """One kernel on a board; its arrays have static sizes."""

    def __init__(self, device: SerialDevice, code: KernelCode) -> None:
        self.device, self.signature = device, code.signature
        name = code.signature.name
        sizes = [bytes_of_param(name, p) for p in code.signature.params]
        self._function = BoardFunction(
            device,
            code.target.text,
            name,
            code.object_code,
            code.messages,
            code.workspace,
            sizes,
        )

    def __call__(self, *args: Any) -> None:
        """Run it on the board; arrays that it writes are copied back."""
        arrays = self.send(args)
        self.call()
        params, places = self.signature.params, self._function.places
        for param, array, place in zip(params, arrays, places, strict=True):
            if isinstance(param, ArrayParam) and param.is_written:
                raw = self.device.monitor.read(place, array.nbytes)
                array[...] = np.frombuffer(raw, array.dtype).reshape(array.shape)

    def time(
        self, *args: Any, repeat: int = 20, min_repeat_ms: float = 0.0, warmup: int = 2
    ) -> Timing:
        """Time the kernel by the board's counter."""
        return measured([self], args, repeat, min_repeat_ms, warmup)[0]

    def send(self, args: Sequence[Any]) -> list[Any]:
        """Send the arguments to the board; gives them as arrays."""
        bound, _ = self.signature.bind(args)
        self._function.ready()
        for array, place in zip(bound, self._function.places, strict=True):
            self.device.monitor.write(place, array.tobytes())
        return bound

    def call(self) -> Called:
        """Call it with the arguments that were sent."""
        return self._function.call(self._function.places)

    def __repr__(self) -> str:
        return f"<BoardKernel {self.signature.name} on {self.device.name}>"


def measured(
    kernels: Sequence[BoardKernel],
    args: Sequence[Any],
    rounds: int,
    min_repeat_ms: float,
    warmup: int,
) -> list[Timing]:
    """Times of kernels of one board on the same arguments, interleaved."""
    if any(kernel.device is not kernels[0].device for kernel in kernels):
        raise UserError("kernels can be measured together only on one device")
    for kernel in kernels:
        kernel.send(args)
    calls = [kernel.call for kernel in kernels]
    clock = kernels[0].device.facts.clock if kernels else 1
    return timed(calls, clock, rounds, min_repeat_ms, warmup)
