"""A compiled kernel that Python can call."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.runtime.device import CPU, Device
from tilewright.runtime.signature import ScalarParam, Signature
from tilewright.runtime.threads import Pool, pool_for
from tilewright.support.errors import UserError

_ALIGNMENT = 64
_ERROR_WORDS = 6


class NativeFunction:
    """The kernel `signature.name` of some object code.

    Calls from several Python threads at once are safe: each takes workspace and an error record
    of its own.
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
        self._code = device.load([object_code])
        name = signature.name
        self._entry = device.function(self._code, f"{name}.entry", ctypes.c_int32)
        self._workspace_size = device.function(self._code, f"{name}.workspace", ctypes.c_int64)
        self._spare: list[Scratch] = []
        self.set_threads(threads)

    def set_threads(self, count: int | None = None, affinity: Sequence[int] | None = None) -> None:
        """Use `count` threads from now on (None: all cores), on the given processors."""
        self._pool: Pool = pool_for(count, affinity)

    @property
    def threads(self) -> int:
        return self._pool.num_threads

    def __call__(self, *args: Any) -> None:
        bound, dims = self.signature.bind(args)
        pool = self._pool
        words, scratch = self._ready(bound, dims, pool)
        try:
            code = self._entry(words)
            if code:
                raise self._error(code, scratch)
        finally:
            self._spare.append(scratch)

    def prepared(self, *args: Any) -> Any:
        """The call with arguments that are checked now, once: for timing the kernel itself."""
        bound, dims = self.signature.bind(args)
        pool, entry = self._pool, self._entry
        words, scratch = self._ready(bound, dims, pool)

        def run() -> None:
            code = entry(words)
            if code:
                raise self._error(code, scratch)

        run.keep = (bound, scratch, pool, self)  # type: ignore[attr-defined]
        return run

    def _ready(self, bound: Sequence[Any], dims: Sequence[int], pool: Pool) -> tuple[Any, Scratch]:
        """The arguments as the entry takes them, and what the call needs for itself.

        The words hold the pool's address alone: callers keep it alive until the call ends.
        """
        words = (ctypes.c_uint64 * (len(bound) + len(dims) + 3))()
        for k, (param, value) in enumerate(zip(self.signature.params, bound, strict=True)):
            scalar = isinstance(param, ScalarParam)
            words[k] = _bits(value, param.dtype.numpy) if scalar else value.ctypes.data
        words[len(bound) : len(bound) + len(dims)] = list(dims)
        scratch = take_scratch(self._spare, self._workspace_size(words))
        words[-3:] = [pool.address, scratch.workspace, scratch.error_address]
        return words, scratch

    def _error(self, code: int, scratch: Scratch) -> UserError:
        message = self._messages[code - 1].format(*scratch.error[1:])
        scratch.error[0] = 0
        return UserError(f"{self.signature.name} stopped", reason=message)


def take_scratch(spare: list[Scratch], size: int) -> Scratch:
    """One of those that no call uses now, or a new one, with so many bytes of workspace."""
    try:
        scratch = spare.pop()
    except IndexError:
        scratch = Scratch()
    scratch.reserve(size)
    return scratch


class Scratch:
    """What one call needs for itself: intermediate buffers and the error record."""

    def __init__(self) -> None:
        self.error = np.zeros(_ERROR_WORDS, np.int64)
        self.error_address = self.error.ctypes.data
        self._memory = np.empty(0, np.uint8)
        self.workspace = 0

    def reserve(self, size: int) -> None:
        if size <= 0 or self._memory.size >= size + _ALIGNMENT:
            return
        try:
            self._memory = np.empty(size + _ALIGNMENT, np.uint8)
        except (MemoryError, ValueError):
            raise UserError(f"out of memory: {size} bytes of workspace are needed") from None
        self.workspace = -(-self._memory.ctypes.data // _ALIGNMENT) * _ALIGNMENT


def _bits(value: Any, dtype: np.dtype[Any]) -> int:
    """A scalar's bits in the low end of a word."""
    raw = np.asarray(value, dtype).tobytes()
    return int.from_bytes(raw.ljust(8, b"\0"), "little")
