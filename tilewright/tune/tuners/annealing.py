"""Simulated annealing: steps from good samples, and ever more seldom from worse ones."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import islice
from random import Random
from typing import Final

from tilewright.tune.spaces.space import Sample, Space
from tilewright.tune.tuners.tuner import TaskHistory, mutated, near_default, random_sample

#: The temperature at first, in parts of the default's time, and what is left of it after each
#: measurement.
_HOT: Final = 0.3
_COOLING: Final = 0.97
_FIRST: Final = 8


class AnnealingTuner:
    """Mutates a measured sample, chosen by how much slower than the fastest it is."""

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
    """Boltzmann's: the fastest has weight one."""
    return [math.exp(-(r - ratios[0]) / max(temperature, 1e-3)) for r in ratios]
