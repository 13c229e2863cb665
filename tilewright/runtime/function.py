"""A compiled kernel that Python can call."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilewright.runtime.device import CPU, Device, Workers
from tilewright.runtime.scratch import Scratch, take_scratch
from tilewright.runtime.signature import ArrayParam, ScalarParam, Signature
from tilewright.support.errors import UserError


class NativeFunction:
    """The kernel `signature.name` of some object code.

    Calls from several Python threads at once are safe: each has its own workspace and error record.
    """

    def __init__(
        self,
        object_code: bytes,
        signature: Signature,
        messages: Sequence[str],
        threads: int | None,
        device: Device = CPU,
    ) -> None:
        self.signature, self._messages = signature, tuple(messages)
        self._device, self._code = device, device.load([object_code])
        name = signature.name
        entry = device.function(self._code, f"{name}.entry", ctypes.c_int32)
        self._entry = device.entered(entry, name)
        self._answering = device.answering([object_code])
        self._workspace_size = device.function(self._code, f"{name}.workspace", ctypes.c_int64)
        self._spare: list[Scratch] = []
        self.set_threads(threads)

    def set_threads(self, count: int | None = None, affinity: Sequence[int] | None = None) -> None:
        """Use `count` threads from now on (None: all cores), on the given processors."""
        self._pool = self._device.workers(count, affinity)

    @property
    def threads(self) -> int:
        return self._pool.num_threads

    def __call__(self, *args: Any) -> None:
        bound, dims = self.signature.bind(args)
        pool, placed = self._pool, self._placed(bound)
        words, scratch = self._ready(placed, dims, pool)
        try:
            with self._answering:
                code = self._entry(words)
                if code:
                    raise self._error(code, scratch)
                self._bring_back(placed, bound)
        finally:
            self._spare.append(scratch)

    def _placed(self, bound: Sequence[Any]) -> Sequence[Any]:
        """The arguments with arrays in the device's memory."""
        if self._device.is_here:
            return bound
        is_array = [isinstance(p, ArrayParam) for p in self.signature.params]
        arrays = iter(self._device.given([v for v, a in zip(bound, is_array, strict=True) if a]))
        return [next(arrays) if a else v for v, a in zip(bound, is_array, strict=True)]

    def _bring_back(self, placed: Sequence[Any], bound: Sequence[Any]) -> None:
        """Copy results back to the caller's arrays."""
        if placed is bound:
            return
        for param, own, array in zip(self.signature.params, placed, bound, strict=True):
            if own is not array and isinstance(param, ArrayParam) and param.is_written:
                array[...] = self._device.taken([own])[0]

    def prepared(self, *args: Any) -> Any:
        """The call with arguments checked and bound once: for timing the kernel itself."""
        (run,) = self.prepared_apart(args, (), 1)
        return run

    def prepared_apart(
        self, args: Sequence[Any], apart: Sequence[int], count: int
    ) -> list[Callable[[], None]]:
        """`count` calls with arguments checked and bound once. On a device, each but the first has
        its own copies of the arguments with indices in `apart`."""
        bound, dims = self.signature.bind(args)
        placed = self._placed(bound)
        copies = (
            [self._again(v, k in apart) for k, v in enumerate(placed)] for _ in range(1, count)
        )
        return [self._call(own, dims, bound) for own in (placed, *copies)]

    def _again(self, value: Any, is_apart: bool) -> Any:
        """An argument of another call, copied if `is_apart`."""
        if not is_apart:
            return value
        return self._device.copied(self._device.address(value), value.shape, value.dtype)

    def _call(
        self, placed: Sequence[Any], dims: Sequence[int], bound: Sequence[Any]
    ) -> Callable[[], None]:
        pool, entry = self._pool, self._entry
        words, scratch = self._ready(placed, dims, pool)

        # Keeps alive what the code works on.
        def run(_alive: object = (bound, placed, scratch, pool, self)) -> None:
            code = entry(words)
            if code:
                raise self._error(code, scratch)

        return run

    def _ready(
        self, bound: Sequence[Any], dims: Sequence[int], pool: Workers
    ) -> tuple[Any, Scratch]:
        """The arguments as words for the entry, and the call's scratch memory.

        The words hold only the pool's address: callers keep the pool alive until the call ends.
        """
        words = (ctypes.c_uint64 * (len(bound) + len(dims) + 3))()
        address = self._device.address
        for k, (param, value) in enumerate(zip(self.signature.params, bound, strict=True)):
            scalar = isinstance(param, ScalarParam)
            words[k] = _bits(value, param.dtype.numpy) if scalar else address(value)
        words[len(bound) : len(bound) + len(dims)] = list(dims)
        scratch = take_scratch(self._spare, self._workspace_size(words), self._device.scratch)
        words[-3:] = [pool.address, scratch.workspace, scratch.error_address]
        return words, scratch

    def _error(self, code: int, scratch: Scratch) -> UserError:
        message = self._messages[code - 1].format(*scratch.error[1:])
        scratch.error[0] = 0
        return UserError(f"{self.signature.name} stopped", reason=message)


def _bits(value: Any, dtype: np.dtype[Any]) -> int:
    """A scalar's bits in the low end of a word."""
    raw = np.asarray(value, dtype).tobytes()
    return int.from_bytes(raw.ljust(8, b"\0"), "little")
