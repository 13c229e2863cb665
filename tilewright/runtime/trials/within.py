"""Candidates timed inside the model that they are for, where there is no compiler.

A kernel that is called alone finds its operands, the caches and its own code as it left them, and
waits for nobody. Between other kernels, what was faster alone may be slower.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from tilewright.runtime.executor import CompiledModel
from tilewright.runtime.kernel import PackedKernel
from tilewright.runtime.objectfile import names_of
from tilewright.runtime.runnable import Inputs
from tilewright.runtime.trials.measured import LONG, SHORT, Measured
from tilewright.runtime.trials.running import judged
from tilewright.support.errors import TilewrightError, UserError

#: Milliseconds that each of two models runs in a sample.
_SAMPLE_MS: Final = 5.0
#: The least part of its time that a kernel is believed to take.
_LEAST: Final = 0.01


class TrialModel:
    """A model by its default schedules, in which kernels are exchanged one at a time."""

    def __init__(self, model: CompiledModel, inputs: Inputs) -> None:
        self._model, self._inputs = model, inputs
        objects = enumerate(model.program.objects)
        self._places = {name: k for k, code in objects for name in names_of(code).defined}
        #: The time of a run.
        self.seconds = self._time(model)

    def has(self, kernel: str) -> bool:
        """Whether a kernel of this name is called in the model."""
        return kernel in self._places

    def compared(self, candidate: bytes, seconds: float) -> Measured:
        """What a packed kernel changes beside the default schedule of its name, whose calls take so
        many seconds in a run, alone.

        Times of runs are compared; what is faster or slower is the kernel's.
        """
        share = min(1.0, seconds / self.seconds)
        try:
            other = self.with_kernel(PackedKernel.unpacked(candidate))
            other.run(self._inputs)
            found = judged(self._rounds(other, SHORT), early=True)
            if found.ratio < 1:
                found = judged(self._rounds(other, LONG), early=False)
        except TilewrightError as error:
            return Measured.of_error(error)
        ratios = (max(_LEAST, 1 - (1 - ratio) / share) for ratio in found.ratios)
        return Measured(tuple(ratios), found.seconds, found.reference)

    def with_kernel(self, kernel: PackedKernel) -> CompiledModel:
        """The model with one kernel exchanged."""
        if not self.has(kernel.name):
            raise UserError(f"the model has no kernel {kernel.name}")
        objects = list(self._model.program.objects)
        objects[self._places[kernel.name]] = kernel.code
        return self._model.with_program(replace(self._model.program, objects=tuple(objects)))

    def _rounds(self, other: CompiledModel, rounds: int) -> Iterator[Sequence[tuple[float, float]]]:
        return ([(self._time(other), self._time(self._model))] for _ in range(rounds))

    def _time(self, model: CompiledModel) -> float:
        return model.time(self._inputs, repeat=1, min_repeat_ms=_SAMPLE_MS).median
