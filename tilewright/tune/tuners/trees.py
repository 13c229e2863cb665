"""A search guided by gradient-boosted trees, trained on all measurements.

For each batch, hundreds of samples are first ranked by their choices, which requires no schedules.
If there are measurements of other tasks, the best of them are then ranked by their loops as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice, product
from random import Random
from typing import Final

from tilewright.tune.spaces.space import Point, Sample, Space
from tilewright.tune.tuners.genetic import child_of
from tilewright.tune.tuners.learning import lightgbm, scores_of_choices, scores_of_loops
from tilewright.tune.tuners.tuner import TaskHistory, mutated, near_default, random_sample

#: Measurements before the first training.
_FIRST: Final = 16
#: Samples ranked by their choices, and those of them that are ranked by their loops.
_JUDGED: Final = 1024
_LOOKED_AT: Final = 24
#: The share of samples taken at random, for exploration.
_EXPLORED: Final = 0.1
_PARENTS: Final = 12


class TreeTuner:
    """Takes the samples with the best predicted scores."""

    def __init__(self) -> None:
        lightgbm()

    def samples(self, space: Space, known: TaskHistory, rng: Random) -> Iterator[Sample]:
        parents = [sample for sample, _ in known.ranked()[:_PARENTS]]
        if len(known.ratios) >= _FIRST and space.knobs:
            yield from _by_choices(space, known, parents, rng)
        elif len(known.examples) - len(known.ratios) >= _FIRST:
            points = _points(_beginnings(space, rng), space, known)
            yield from (p.sample for p in _by_loops(points, known, rng))
        else:
            yield from islice(_beginnings(space, rng), 2 * _FIRST)
        while True:
            yield child_of(parents, space, rng)


def _beginnings(space: Space, rng: Random) -> Iterator[Sample]:
    """Samples near the default alternating with random ones: the default may be a bad start."""
    for sample in near_default(space):
        yield sample
        yield random_sample(space, rng)


def _by_choices(
    space: Space, known: TaskHistory, parents: list[Sample], rng: Random
) -> Iterator[Sample]:
    """Samples that have not been measured, best predicted score first."""
    pool = _pool(space, known, parents, rng)
    if not pool:
        return
    scores = scores_of_choices(space.knobs, known.ratios, pool, rng)
    order = [pool[k] for k in sorted(range(len(pool)), key=lambda k: -scores[k])]
    if len(known.examples) > len(known.ratios):
        leaders = _by_loops(_points(iter(order), space, known), known, rng)
        order = [*(p.sample for p in leaders), *order]
    yield from _mostly_in_order(order, rng)


def _mostly_in_order(order: list[Sample], rng: Random) -> Iterator[Sample]:
    while order:
        at = rng.randrange(len(order)) if rng.random() < _EXPLORED else 0
        yield order.pop(at)


def _pool(space: Space, known: TaskHistory, parents: list[Sample], rng: Random) -> list[Sample]:
    """Samples to rank: all of a small space, else children, neighbours of the best, random ones."""
    if space.size <= _JUDGED:
        names = sorted(space.knobs)
        sizes = [range(len(space.knobs[n])) for n in names]
        every = (Sample.of(dict(zip(names, p, strict=True))) for p in product(*sizes))
        return [s for s in every if s not in known.ratios]
    found: dict[Sample, None] = {}
    for number in range(_JUDGED):
        if number % 4 == 0:
            sample = random_sample(space, rng)
        elif number % 4 == 1 and parents:
            sample = mutated(parents[0], space, rng)
        else:
            sample = child_of(parents, space, rng)
        if sample not in known.ratios:
            found[sample] = None
    return list(found)


def _points(samples: Iterator[Sample], space: Space, known: TaskHistory) -> list[Point]:
    """The schedules of the first samples that are legal and have not been measured."""
    found: dict[Sample, Point] = {}
    for sample in islice(samples, 2 * _LOOKED_AT):
        point = space.point(sample)
        if point is not None and point.sample not in known.ratios:
            found.setdefault(point.sample, point)
        if len(found) >= _LOOKED_AT:
            break
    return list(found.values())


def _by_loops(points: list[Point], known: TaskHistory, rng: Random) -> list[Point]:
    """Schedules ranked by a model of the loops of all tasks, best first."""
    if not points:
        return []
    scores = scores_of_loops(known.examples, [p.features for p in points], rng)
    return [points[k] for k in sorted(range(len(points)), key=lambda k: -scores[k])]
