"""The executor as a device: models for GPUs run on it as on a GPU, but slowly."""

from __future__ import annotations

import ctypes
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilewright.ir import Buffer, Expr, Function, Var, evaluate, parse_function
from tilewright.runtime import Launched, LaunchingDevice, Touched
from tilewright.simt.lanes import Array
from tilewright.simt.run import run
from tilewright.support.errors import InternalError
from tilewright.support.timing import Timing, measure


class Simt(LaunchingDevice):
    """Threads in lockstep on the CPU; its memory is host memory."""

    name, dlpack_type = "simt", 1

    def __init__(self) -> None:
        super().__init__()
        self._memory: dict[int, Array] = {}

    def allocate(self, size: int) -> int:
        memory = np.full(size + 256, 0xA5, np.uint8)
        start = -(-memory.ctypes.data // 256) * 256
        self._memory[start] = memory[start - memory.ctypes.data :][:size]
        return start

    def release(self, address: int) -> None:
        del self._memory[address]

    def write(self, address: int, array: Array) -> None:
        ctypes.memmove(address, array.ctypes.data, array.nbytes)

    def read(self, array: Array, address: int) -> None:
        ctypes.memmove(array.ctypes.data, address, array.nbytes)

    def copy(self, to: int, source: int, size: int) -> None:
        ctypes.memmove(to, source, size)

    def pinned(self, size: int) -> Array:
        return np.zeros(size, np.uint8)

    def send(self, to: int, source: int, size: int) -> None:
        self.copy(to, source, size)

    def fetch(self, source: int, to: int, size: int) -> None:
        self.copy(to, source, size)

    def store(self, place: int, data: bytes) -> None:
        ctypes.memmove(place, data, len(data))

    def make(self, entry: str, forms: Sequence[bytes], shared: int) -> Function:
        return parse_function(forms[-1].rstrip(b"\0").decode())

    def unmake(self, kernel: Launched) -> None:
        del kernel

    def start(
        self, kernel: Launched, blocks: Sequence[int], args: Sequence[int], touched: Touched
    ) -> None:
        del touched
        function: Function = kernel.handle
        numbers = {
            p: _number(p, word)
            for p, word in zip(function.params, args, strict=True)
            if isinstance(p, Var)
        }
        values = [
            self._array(p, word, numbers) if isinstance(p, Buffer) else numbers[p]
            for p, word in zip(function.params, args, strict=True)
        ]
        run(function, values)

    def _array(self, buffer: Buffer, address: int, numbers: dict[Var, Any]) -> Array:
        """The memory at an address, viewed as a buffer."""
        shape = [_value(d, numbers) for d in buffer.shape]
        dtype = buffer.dtype.numpy
        size = int(np.prod(shape)) * dtype.itemsize
        starts = sorted(self._memory)
        begin = starts[bisect_right(starts, address) - 1] if starts else 0
        held = self._memory.get(begin)
        if size and (held is None or not begin <= address <= address + size <= begin + held.size):
            raise InternalError(f"{buffer.name} lies outside of the device's memory")
        if not size or held is None:
            return np.empty(shape, dtype)
        offset = address - begin
        return held[offset : offset + size].view(dtype).reshape(shape)

    def errors(self) -> Array:
        return np.zeros((1, 6), np.int64)

    def time(
        self, run: Callable[[], object], repeat: int, min_repeat_ms: float, warmup: int
    ) -> Timing:
        return measure(run, repeat, min_repeat_ms, warmup)


def _number(param: Var, word: int) -> Any:
    raw = word.to_bytes(8, "little")[: param.dtype.itemsize]
    return np.frombuffer(raw, param.dtype.numpy)[0]


def _value(expr: Expr, numbers: dict[Var, Any]) -> int:
    return int(evaluate(expr, numbers))


DEVICE = Simt()
