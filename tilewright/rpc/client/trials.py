"""Trials by calls of kernels, for devices without Python, which make none themselves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.rpc.client.kernel import RemoteKernel, measured_apart
from tilewright.runtime import (
    SAMPLE,
    SAMPLES,
    ArrayParam,
    KernelCode,
    Measured,
    PackedKernel,
    Preparation,
    Signature,
    TrialServer,
    TrialTask,
    copied,
    copy_count,
    judged,
    kept,
    made_up_arguments,
    preparing_signature,
    signature_alone,
    why_wrong,
)
from tilewright.support.dtype import DType

if TYPE_CHECKING:
    from tilewright.rpc.client.device import Device

Array = np.ndarray[Any, Any]


class TrialsByCalls:
    """Answers messages of `runtime.trials` on behalf of a device."""

    def __init__(self, device: Device) -> None:
        self._server = TrialServer(begin=lambda task, default: TaskByCalls(device, task, default))

    def answer(self, asked: dict[str, Any], code: bytes) -> Measured:
        return Measured.of_data(self._server.answered(asked, code))


class TaskByCalls:
    """A task with its default kernel on a device, local arguments, and the default's results."""

    def __init__(self, device: Device, task: TrialTask, default: PackedKernel) -> None:
        self._device, self._task = device, task
        own = made_up_arguments(task)
        self._copies = [own]
        self._default = self._loaded(default)
        self._results = self._default.results()
        (once,) = measured_apart([self._default.kernel], [self._default.sets], 1, 0.0, 1)
        #: The seconds of a call of the default.
        self.seconds = max(1e-7, once.min)
        count = copy_count(task, own, self.seconds)
        self._copies = [own, *(copied(own) for _ in range(count - 1))]
        self._default = self._loaded(default)

    def compared(
        self, candidate: PackedKernel, rounds: int, *, early: bool, memory: int
    ) -> Measured:
        """Compare a candidate's results and times with the default's."""
        del memory  # The server limits the memory of its sessions.
        loaded = self._loaded(candidate)
        if reason := why_wrong(self._results, loaded.results()):
            return Measured(failure="wrong answer", reason=reason)
        return judged(self._rounds(loaded, rounds), early=early)

    def _rounds(self, loaded: _Loaded, rounds: int) -> Iterator[Sequence[tuple[float, float]]]:
        """The samples of all rounds; the first round is requested separately, to stop early."""
        kernels, sets = [loaded.kernel, self._default.kernel], [loaded.sets, self._default.sets]
        for part in filter(None, (1, rounds - 1)):
            own, reference = measured_apart(kernels, sets, part * SAMPLES, 1e3 * SAMPLE, 1)
            pairs = list(zip(own.samples, reference.samples, strict=True))
            yield from (pairs[k : k + SAMPLES] for k in range(0, len(pairs), SAMPLES))

    def _loaded(self, kernel: PackedKernel) -> _Loaded:
        return _Loaded(self._device, self._task, kernel, self._copies)


class _Loaded:
    """A kernel of a task on a device, with its own arguments."""

    def __init__(
        self,
        device: Device,
        task: TrialTask,
        kernel: PackedKernel,
        copies: Sequence[Sequence[Any]],
    ) -> None:
        self._device, self._task, once = device, task, kernel.preparation
        own = signature_alone(kernel, task.signature)
        self.kernel = self._sent(own, kernel.code, kernel.messages)
        made = [] if once is None else self._prepared(once, copies[0])
        #: The sets of arguments that its calls cycle through.
        self.sets = [[*(args if once is None else kept(once, args)), *made] for args in copies]

    def results(self) -> list[Array]:
        """Its outputs; the arguments are not changed."""
        own = copied(self.sets[0])
        self.kernel(*own)
        pairs = zip(self.kernel.signature.params, own, strict=True)
        return [a for p, a in pairs if isinstance(p, ArrayParam) and p.is_written]

    def _prepared(self, once: Preparation, arguments: Sequence[Any]) -> list[Array]:
        made = [np.zeros(shape, DType.of(dtype).numpy) for dtype, shape in once.made]
        signature = preparing_signature(once, self._task.signature)
        prepare = self._sent(signature, once.object_code, once.messages)
        prepare(*(arguments[k] for k in once.taken), *made)
        return made

    def _sent(self, signature: Signature, code: bytes, messages: Sequence[str]) -> RemoteKernel:
        task = self._task
        kernel = KernelCode(task.target, signature, code, tuple(messages), task.pool, task.threads)
        return self._device.load_kernel(kernel)
