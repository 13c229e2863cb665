"""Samples at random: what others are compared with."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from tilewright.tune.spaces.space import Sample, Space
from tilewright.tune.tuners.tuner import TaskHistory, random_sample


class RandomTuner:
    """Takes any sample, all alike."""

    def samples(self, space: Space, known: TaskHistory, rng: Random) -> Iterator[Sample]:
        del known
        while True:
            yield random_sample(space, rng)
