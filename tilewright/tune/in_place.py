"""A final measurement of winners where they will run: in the model, against its defaults.

A kernel that is measured alone finds its operands, the caches and the threads as its last call left
them. In a model other kernels run in between, and what is faster alone may be slower there.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from tilewright.models.native import NativeModel
from tilewright.runtime import RunnableModel
from tilewright.tune.in_turns import InTurns
from tilewright.tune.tasks import kernel_seconds, key_of_kernel

#: Schedulers of kernels, by target and task.
Schedulers = Mapping[str, Mapping[str, str]]

#: The two models run alternately: the number of rounds, and runs of each per round.
_ROUNDS: Final = 9
_RUNS: Final = 5


@dataclass(frozen=True)
class InPlace:
    """A model with its default schedules, and a way to compile it with others."""

    model: NativeModel
    turns: InTurns
    compiled: Callable[[Schedulers], NativeModel]

    def ratios(self, found: Schedulers) -> dict[str, float]:
        """The times of kernels with these schedules relative to their defaults, by task key."""
        with self.turns.placed(self.model, self.compiled(found)) as (model, tuned):
            rounds = [self._round(model, tuned) for _ in range(_ROUNDS)]
        return {
            key_of_kernel(self.model, name): statistics.median(r[name] for r in rounds)
            for name in rounds[0]
            if all(name in r for r in rounds)
        }

    def _round(self, model: RunnableModel, tuned: RunnableModel) -> dict[str, float]:
        inputs = self.turns.inputs
        before, after = (kernel_seconds(m, inputs, _RUNS) for m in (model, tuned))
        return {name: after[name] / s for name, s in before.items() if name in after and s > 0}
