"""Compares two forms of a model by alternating runs, here or on a device, kernel by kernel."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np

from tilewright.models.native import NativeModel
from tilewright.runtime import Inputs, Measured, RunnableModel, judged, why_wrong
from tilewright.support.errors import TilewrightError
from tilewright.tune.tasks import KernelTimes, kernel_times, key_of_kernel

#: Runs of each model in a round: as many as fit into these seconds.
_ROUND: Final = 0.1
_FEWEST, _MOST = 1, 20

if TYPE_CHECKING:
    from tilewright.tune.measuring.devices import Devices


@dataclass(frozen=True)
class InTurns:
    """Where the two models run, and with which inputs."""

    inputs: Inputs
    #: None: on this machine.
    devices: Devices | None = None
    threads: int | None = None

    @contextmanager
    def placed(
        self, first: NativeModel, second: NativeModel
    ) -> Generator[tuple[RunnableModel, RunnableModel]]:
        """Both models, loaded where they run."""
        if self.devices is None:
            yield first, second
            return
        with self.devices.borrowed() as device:
            there = [device.load(m, threads=self.threads) for m in (first, second)]
            yield there[0], there[1]

    def beside(
        self, model: NativeModel, variant: NativeModel, rounds: int, *, early: bool
    ) -> Measured:
        """Compare a variant with its model: the kernels that only the variant has, against those
        they replace. It counts as no faster unless the whole model is: in three of four rounds, or
        in the median with `early`."""
        keys = {m: {n: key_of_kernel(m, n) for n in m.kernels} for m in (model, variant)}
        wholes: list[tuple[float, float]] = []

        def timed(m: NativeModel, there: RunnableModel) -> KernelTimes:
            return kernel_times(there, self.inputs, keys[m])

        def samples(a: RunnableModel, b: RunnableModel) -> Iterator[Sequence[tuple[float, float]]]:
            runs = _FEWEST
            for _ in range(rounds):
                start = time.perf_counter()
                pairs = [(timed(variant, b), timed(model, a)) for _ in range(runs)]
                spent = (time.perf_counter() - start) / runs
                runs = max(_FEWEST, min(_MOST, int(_ROUND / spent)))
                wholes.append(_least([(_part(own), _part(other)) for own, other in pairs]))
                yield [(_part(own, other), _part(other, own)) for own, other in pairs]

        try:
            with self.placed(model, variant) as (a, b):
                if reason := why_wrong(self._answers(a), self._answers(b)):
                    return Measured(failure="wrong answer", reason=reason)
                found = judged(samples(a, b), early=early)
        except TilewrightError as error:
            return Measured.of_error(error)
        whole = Measured(tuple(own / other for own, other in wholes))
        is_faster = whole.ratio < 1 if early else whole.upper < 1
        return found if is_faster else replace(found, ratios=(max(1.0, whole.ratio),))

    def _answers(self, model: RunnableModel) -> list[Any]:
        return list(_arrays(model.run(self.inputs)))


def _part(times: KernelTimes, others: KernelTimes | None = None) -> float:
    """The seconds of a run in calls that the others do not make.

    Each run is summed before the minimum is taken: on a busy machine, the minimum of many short
    calls is that of an uninterrupted moment, which a long call never has.
    """
    seconds = 0.0
    for key, (calls, spent) in times.items():
        known, _ = others.get(key, (0, 0.0)) if others else (0, 0.0)
        seconds += max(0, calls - known) / calls * spent
    return max(seconds, 1e-9)


def _least(pairs: Sequence[tuple[float, float]]) -> tuple[float, float]:
    own, other = zip(*pairs, strict=True)
    return min(own), min(other)


def _arrays(outputs: Sequence[Any]) -> Iterator[Any]:
    """All tensors in a model's outputs, including those in sequences."""
    for value in outputs:
        if isinstance(value, list):
            yield from _arrays(cast("list[Any]", value))
        elif value is not None:
            yield np.asarray(value)
