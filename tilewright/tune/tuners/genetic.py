"""A genetic search: crosses and mutates the fastest samples."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from random import Random
from typing import Final

from tilewright.tune.spaces.space import Sample, Space
from tilewright.tune.tuners.tuner import TaskHistory, crossed, mutated, near_default, random_sample

#: Measured samples from which parents are chosen.
_PARENTS: Final = 12
#: The number of initial samples, which are near the default.
_FIRST: Final = 8


class GeneticTuner:
    """Crosses two of the fastest samples and mutates the child; one in ten is random."""

    def samples(self, space: Space, known: TaskHistory, rng: Random) -> Iterator[Sample]:
        if len(known.ratios) < _FIRST:
            yield from islice(near_default(space), _FIRST)
        parents = [sample for sample, _ in known.ranked()[:_PARENTS]]
        while True:
            yield child_of(parents, space, rng)


def child_of(parents: list[Sample], space: Space, rng: Random) -> Sample:
    """A child of these parents, or a random sample."""
    if not parents or rng.random() < 0.1 or not space.knobs:
        return random_sample(space, rng)
    # Weights 1, 1/2, 1/3, … by rank.
    weights = [1 / (rank + 1) for rank in range(len(parents))]
    one, other = rng.choices(parents, weights, k=2)
    child = crossed(one, other, rng)
    return mutated(child, space, rng) if rng.random() < 0.8 else child
