"""Random samples, as a baseline for other tuners."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from tilewright.tune.spaces.space import Sample, Space
from tilewright.tune.tuners.tuner import TaskHistory, random_sample


class RandomTuner:
    """Takes samples uniformly at random."""

    def samples(self, space: Space, known: TaskHistory, rng: Random) -> Iterator[Sample]:
        del known
        while True:
            yield random_sample(space, rng)
