"""Winners measured once more where they will run: in the model, beside its default schedules.

A kernel that is measured alone finds its operands, the caches and the threads as it left them
itself. In a model others run in between, and what was faster alone may be slower there.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from tilewright.models.native import NativeModel
from tilewright.runtime import Inputs
from tilewright.tune.tasks import kernel_seconds

#: Schedulers of kernels, by target and task.
Schedulers = Mapping[str, Mapping[str, str]]

#: The two models run in turns: so many rounds, and runs of each in a round.
_ROUNDS: Final = 9
_RUNS: Final = 5


@dataclass(frozen=True)
class InPlace:
    """A model by its default schedules, and how it is compiled by others."""

    model: NativeModel
    inputs: Inputs
    compiled: Callable[[Schedulers], NativeModel]

    def ratios(self, found: Schedulers) -> dict[str, float]:
        """The times of kernels by these schedules, in those by default, by task."""
        tuned = self.compiled(found)
        rounds = [self._round(tuned) for _ in range(_ROUNDS)]
        return {
            task: statistics.median(r[task] for r in rounds if task in r)
            for task in dict.fromkeys(t for r in rounds for t in r)
        }

    def _round(self, tuned: NativeModel) -> dict[str, float]:
        before, after = (kernel_seconds(m, self.inputs, _RUNS) for m in (self.model, tuned))
        return {task: after[task] / s for task, s in before.items() if task in after and s > 0}
