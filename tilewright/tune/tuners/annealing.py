"""Simulated annealing: mutates good samples, and ever more rarely worse ones."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import islice
from random import Random
from typing import Final

from tilewright.tune.spaces.space import Sample, Space
from tilewright.tune.tuners.tuner import TaskHistory, mutated, near_default, random_sample

#: The initial temperature, relative to the default's time, and its factor per measurement.
_HOT: Final = 0.3
_COOLING: Final = 0.97
_FIRST: Final = 8


class AnnealingTuner:
    """Mutates a measured sample, chosen by its slowdown against the fastest."""

    def samples(self, space: Space, known: TaskHistory, rng: Random) -> Iterator[Sample]:
        ranked = known.ranked()
        if len(known.ratios) < _FIRST:
            yield from islice(near_default(space), _FIRST)
        if not ranked or not space.knobs:
            while True:
                yield random_sample(space, rng)
        weights = _weights([ratio for _, ratio in ranked], _HOT * _COOLING ** len(known.ratios))
        while True:
            (base,) = rng.choices([sample for sample, _ in ranked], weights)
            yield mutated(base, space, rng)


def _weights(ratios: list[float], temperature: float) -> list[float]:
    """Boltzmann weights, 1 for the fastest."""
    return [math.exp(-(r - ratios[0]) / max(temperature, 1e-3)) for r in ratios]
