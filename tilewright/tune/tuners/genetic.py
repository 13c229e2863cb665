"""A genetic search: the fastest samples are crossed and mutated."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from random import Random
from typing import Final

from tilewright.tune.spaces.space import Sample, Space
from tilewright.tune.tuners.tuner import TaskHistory, crossed, mutated, near_default, random_sample

#: Measured samples among which parents are chosen.
_PARENTS: Final = 12
#: Samples at the beginning that are near the default.
_FIRST: Final = 8


class GeneticTuner:
    """Crosses two of the fastest samples and mutates the child; one of ten is any sample."""

    def samples(self, space: Space, known: TaskHistory, rng: Random) -> Iterator[Sample]:
        if len(known.ratios) < _FIRST:
            yield from islice(near_default(space), _FIRST)
        parents = [sample for sample, _ in known.ranked()[:_PARENTS]]
        while True:
            yield child_of(parents, space, rng)


def child_of(parents: list[Sample], space: Space, rng: Random) -> Sample:
    """A sample made of these; any where there are none."""
    if not parents or rng.random() < 0.1 or not space.knobs:
        return random_sample(space, rng)
    # The fastest is a parent twice as often as the second, and so on.
    weights = [1 / (rank + 1) for rank in range(len(parents))]
    one, other = rng.choices(parents, weights, k=2)
    child = crossed(one, other, rng)
    return mutated(child, space, rng) if rng.random() < 0.8 else child
