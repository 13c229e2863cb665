"""Times candidates inside the model that they are for, where there is no compiler.

A kernel that is called alone finds its operands, the caches and its own code as its last call left
them, and waits for no other kernel. What is faster alone may be slower between other kernels.
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

#: Milliseconds that each of two models runs per sample.
_SAMPLE_MS: Final = 5.0
#: Lower bound for the kernel's share of the run time.
_LEAST: Final = 0.01


class TrialModel:
    """A model with its default schedules, in which kernels are replaced one at a time."""

    def __init__(self, model: CompiledModel, inputs: Inputs) -> None:
        self._model, self._inputs = model, inputs
        objects = enumerate(model.program.objects)
        self._places = {name: k for k, code in objects for name in names_of(code).defined}
        #: The seconds of a run.
        self.seconds = self._time(model)

    def has(self, kernel: str) -> bool:
        """Whether the model calls a kernel of this name."""
        return kernel in self._places

    def compared(self, candidate: bytes, seconds: float) -> Measured:
        """The effect of a serialized kernel in place of its default, whose calls alone take
        `seconds` per run.

        Times of whole runs are compared; the difference is attributed to the kernel.
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
        """The model with one kernel replaced."""
        if not self.has(kernel.name):
            raise UserError(f"the model has no kernel {kernel.name}")
        objects = list(self._model.program.objects)
        objects[self._places[kernel.name]] = kernel.code
        return self._model.with_program(replace(self._model.program, objects=tuple(objects)))

    def _rounds(self, other: CompiledModel, rounds: int) -> Iterator[Sequence[tuple[float, float]]]:
        return ([(self._time(other), self._time(self._model))] for _ in range(rounds))

    def _time(self, model: CompiledModel) -> float:
        return model.time(self._inputs, repeat=1, min_repeat_ms=_SAMPLE_MS).median
