"""Measures on this machine, in a separate process that is restarted when it fails."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from tilewright.runtime import Measured, TrialProcess
from tilewright.tune.measuring.data import trial_task
from tilewright.tune.measuring.measurer import Outcome
from tilewright.tune.tasks import Task


@dataclass
class LocalMeasurer:
    """Times kernels of tasks, one after the other."""

    #: Seconds for a candidate, on top of its calls at the default's speed.
    timeout: float = 10.0
    #: Bytes that a candidate may allocate.
    memory: int = 1 << 30
    _process: TrialProcess | None = field(default=None, repr=False)

    @property
    def width(self) -> int:
        return 0

    def begin(self, task: Task, reference: bytes) -> Measured:
        if self._process is None:
            self._process = TrialProcess(self.timeout, self.memory)
        return self._process.begin(trial_task(task), reference)

    def measure(
        self, candidates: Iterable[bytes], rounds: int, *, early: bool = True
    ) -> Iterator[Outcome]:
        assert self._process is not None
        for number, code in enumerate(candidates):
            yield number, self._process.measure(code, rounds, early=early)

    def close(self) -> None:
        if self._process is not None:
            self._process.close()
