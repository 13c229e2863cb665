"""Winners measured once more where they will run: in the model, beside its default schedules.

A kernel that is measured alone finds its operands, the caches and the threads as it left them
itself. In a model others run in between, and what was faster alone may be slower there.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tilewright.models.native import NativeModel
from tilewright.runtime import Inputs, RunnableModel
from tilewright.tune.tasks import kernel_seconds, key_of_kernel

if TYPE_CHECKING:
    from tilewright.tune.measuring.devices import Devices

#: Schedulers of kernels, by target and task.
Schedulers = Mapping[str, Mapping[str, str]]

#: The two models run alternately: so many rounds, and runs of each in a round.
_ROUNDS: Final = 9
_RUNS: Final = 5


@dataclass(frozen=True)
class InPlace:
    """A model by its default schedules, and how it is compiled by others."""

    model: NativeModel
    inputs: Inputs
    compiled: Callable[[Schedulers], NativeModel]
    #: Where both run; None: on this machine.
    devices: Devices | None = None
    threads: int | None = None

    def ratios(self, found: Schedulers) -> dict[str, float]:
        """The times of kernels by these schedules, in those by default, by the keys of tasks."""
        with self._placed(self.compiled(found)) as (model, tuned):
            rounds = [self._round(model, tuned) for _ in range(_ROUNDS)]
        return {
            key_of_kernel(self.model, name): statistics.median(r[name] for r in rounds)
            for name in rounds[0]
            if all(name in r for r in rounds)
        }

    @contextmanager
    def _placed(self, tuned: NativeModel) -> Generator[tuple[RunnableModel, RunnableModel]]:
        """Both models where they run."""
        if self.devices is None:
            yield self.model, tuned
            return
        with self.devices.borrowed() as device:
            model, other = (device.load(m, threads=self.threads) for m in (self.model, tuned))
            yield model, other

    def _round(self, model: RunnableModel, tuned: RunnableModel) -> dict[str, float]:
        before, after = (kernel_seconds(m, self.inputs, _RUNS) for m in (model, tuned))
        return {name: after[name] / s for name, s in before.items() if name in after and s > 0}
