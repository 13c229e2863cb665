"""Trials on a board: candidates of a task against its default, by the board's counter."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, prod
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tilewright.rpc.serial.function import BoardFunction, bytes_of_param
from tilewright.rpc.serial.memory import BoardPart
from tilewright.runtime import (
    ArrayParam,
    Measured,
    PackedKernel,
    TrialTask,
    judged,
    made_up_arguments,
    why_wrong,
)
from tilewright.support.dtype import DType
from tilewright.support.memory import aligned

if TYPE_CHECKING:
    from tilewright.rpc.serial.device import SerialDevice

Array = np.ndarray[Any, Any]

#: Ticks per sample, so that a tick more or less does not matter; and most calls per sample.
_SAMPLE: Final = 1000
_MOST_CALLS: Final = 16
#: The time limit for a call of a candidate: a multiple of the default's time, plus seconds.
_TIMES: Final = 10
_SECONDS: Final = 0.01


class BoardTask:
    """A task with its arguments on a board, its default kernel, and the default's results.

    A tick counter has no noise except that of the memory system, and a board has little memory: all
    kernels share one copy of the arguments, and one sample is as good as many.
    """

    def __init__(self, device: SerialDevice, task: TrialTask, default: PackedKernel) -> None:
        self._device, self._task = device, task
        params = task.signature.params
        sizes = [aligned(bytes_of_param(task.signature.name, p)) for p in params]
        self._part = BoardPart(device, sum(sizes), "what the kernel is called with")
        self._places = [self._part.begin + sum(sizes[:k]) for k in range(len(sizes))]
        self._arguments: list[Array] = made_up_arguments(task)
        self._send(range(len(params)))
        self._written = [
            k for k, p in enumerate(params) if isinstance(p, ArrayParam) and p.is_written
        ]
        self._limit = device.seconds
        self._default = self._loaded(default)
        ticks = self._default.ticks()
        self._results = self._outputs()
        self._count = min(_MOST_CALLS, ceil(_SAMPLE / max(1, ticks)))
        #: The seconds of a call of the default.
        self.seconds = ticks / device.facts.clock
        self._limit = min(device.seconds, _TIMES * self.seconds + _SECONDS)

    def compared(
        self, candidate: PackedKernel, rounds: int, *, early: bool, memory: int
    ) -> Measured:
        """Compare a candidate's results and times with the default's."""
        del memory  # The board's memory is the limit.
        loaded = self._loaded(candidate)
        # Restore the outputs: those of the default must not pass for the candidate's.
        self._send(self._written)
        loaded.ticks()
        if reason := why_wrong(self._results, self._outputs()):
            return Measured(failure="wrong answer", reason=reason)
        both = (loaded, self._default)
        pairs = ((self._sample(both[0]), self._sample(both[1])) for _ in range(rounds))
        return judged(([pair] for pair in pairs), early=early)

    def _loaded(self, kernel: PackedKernel) -> _PlacedKernel:
        return _PlacedKernel(self._device, self._task, kernel, self._places, self._limit)

    def _sample(self, kernel: _PlacedKernel) -> float:
        ticks = sum(kernel.ticks() for _ in range(self._count))
        return ticks / self._count / self._device.facts.clock

    def _send(self, numbers: Sequence[int]) -> None:
        for k in numbers:
            self._device.monitor.write(self._places[k], self._arguments[k].tobytes())

    def _outputs(self) -> list[Array]:
        return [self._output(self._arguments[k], self._places[k]) for k in self._written]

    def _output(self, like: Array, place: int) -> Array:
        raw = self._device.monitor.read(place, like.nbytes)
        return np.frombuffer(raw, like.dtype).reshape(like.shape)


class _PlacedKernel:
    """A kernel of a task on a board, whose constants are packed there before it is called."""

    def __init__(
        self,
        device: SerialDevice,
        task: TrialTask,
        kernel: PackedKernel,
        places: Sequence[int],
        seconds: float,
    ) -> None:
        self._device, self._seconds, once = device, seconds, kernel.preparation
        made = [] if once is None else [_bytes_of(*m) for m in once.made]
        self._function = BoardFunction(
            device,
            task.target.text,
            kernel.name,
            kernel.code,
            kernel.messages,
            kernel.workspace,
            made,
        )
        dropped = () if once is None else once.dropped
        kept = [p for k, p in enumerate(places) if k not in dropped]
        self._words = [*kept, *self._function.places]
        if once is not None:
            # Unwritten parts must be zero, as elsewhere.
            for place, size in zip(self._function.places, made, strict=True):
                device.monitor.clear(place, size)
            prepare = BoardFunction(
                device,
                task.target.text,
                once.name,
                once.object_code,
                once.messages,
                once.workspace,
            )
            taken = [places[k] for k in once.taken]
            prepare.call([*taken, *self._function.places], seconds)

    def ticks(self) -> int:
        """Call it; gives its duration in ticks."""
        self._device.require_uncut()
        return max(1, self._function.call(self._words, self._seconds).ticks)


def _bytes_of(dtype: str, shape: Sequence[int]) -> int:
    return DType.of(dtype).itemsize * prod(shape)
