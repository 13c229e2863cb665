"""A kernel in the memory of a board: called as if it were here, and timed beside others."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tilewright.rpc.serial.code import BoardCode, timed
from tilewright.rpc.serial.monitor import Called
from tilewright.runtime import ArrayParam, KernelCode, Signature
from tilewright.support.errors import UserError
from tilewright.support.timing import Timing

if TYPE_CHECKING:
    from tilewright.rpc.serial.device import SerialDevice

#: What a kernel is passed behind its arrays: three words (thread pool, workspace, error record).
_ENV: Final = struct.Struct("<QQQ")
#: The words of an error record.
_RECORD_BYTES: Final = 6 * 8


class BoardKernel:
    """One kernel on a board; its arrays have sizes that are numbers."""

    def __init__(self, device: SerialDevice, code: KernelCode) -> None:
        if code.workspace is None:
            raise _refusal(code, "the memory that it works in is not known beforehand")
        self.device, self._kernel = device, code
        self._sizes = [_bytes_of(code, p) for p in code.signature.params]
        sizes = [*self._sizes, code.workspace, _RECORD_BYTES, _ENV.size]
        self._code = BoardCode(device, code.object_code, code.signature.name, sizes)
        *_, workspace, record, env = self._code.places
        device.monitor.write(env, _ENV.pack(0, workspace, record))

    @property
    def signature(self) -> Signature:
        return self._kernel.signature

    def __call__(self, *args: Any) -> None:
        """Run it on the board; arrays that it writes to are brought back."""
        arrays = self.send(args)
        self.call()
        for param, array, place in zip(
            self.signature.params, arrays, self._code.places, strict=False
        ):
            if isinstance(param, ArrayParam) and param.is_written:
                raw = self.device.monitor.read(place, array.nbytes)
                array[...] = np.frombuffer(raw, array.dtype).reshape(array.shape)

    def time(
        self, *args: Any, repeat: int = 20, min_repeat_ms: float = 0.0, warmup: int = 2
    ) -> Timing:
        """Time the kernel by the board's counter."""
        return measured([self], args, repeat, min_repeat_ms, warmup)[0]

    def send(self, args: Sequence[Any]) -> list[Any]:
        """Send the arguments to the board; the arrays that they are."""
        self.device.require_open()
        bound, _ = self.signature.bind(args)
        for array, place in zip(bound, self._code.places, strict=False):
            self.device.monitor.write(place, array.tobytes())
        return bound

    def call(self) -> Called:
        """Call it with the arguments that were sent."""
        places = self._code.places
        called = self._code.call([*places[: len(self._sizes)], places[-1]])
        if called.value:
            messages, number = self._kernel.messages, called.value - 1
            known = messages[number] if 0 <= number < len(messages) else f"it says {called.value}"
            raise UserError(f"{self.signature.name} stopped on the board", reason=known)
        return called

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


def _bytes_of(code: KernelCode, param: Any) -> int:
    if not isinstance(param, ArrayParam):
        raise _refusal(code, f"{param.name} is a number, and the monitor passes arrays alone")
    extents = [d for d in param.shape if isinstance(d, int)]
    if len(extents) != len(param.shape) or param.strides is not None:
        raise _refusal(code, f"the size of {param.name} is known only when it runs")
    return int(np.prod(extents, dtype=np.int64)) * param.dtype.itemsize


def _refusal(code: KernelCode, reason: str) -> UserError:
    return UserError(
        f"{code.signature.name} cannot run on a board",
        reason=reason,
        remedy="build it for the target of the device, over arrays whose sizes are numbers",
    )
