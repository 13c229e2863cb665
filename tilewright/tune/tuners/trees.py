"""A search guided by gradient-boosted trees, which learn from all that was measured.

Of each batch, samples are first judged by their choices: hundreds of them, since none has to be
scheduled for that. Where measurements of other tasks are known, those that promise most are then
judged by their loops as well.
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

#: Measurements before which there is nothing to learn from.
_FIRST: Final = 16
#: Samples that are judged by their choices, and those of them that are judged by their loops.
_JUDGED: Final = 1024
_LOOKED_AT: Final = 24
#: The part of samples that are taken whatever they promise.
_EXPLORED: Final = 0.1
_PARENTS: Final = 12


class TreeTuner:
    """Takes what promises most."""

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
    """Samples near the default, and any others, alternately: the default may be a bad beginning."""
    for sample in near_default(space):
        yield sample
        yield random_sample(space, rng)


def _by_choices(
    space: Space, known: TaskHistory, parents: list[Sample], rng: Random
) -> Iterator[Sample]:
    """Samples that nobody has measured, those first that promise most."""
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
    """Samples to judge: all of a small space; of a larger one children, neighbours of the best,
    and any."""
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
    """The schedules of the first legal ones that were not measured yet."""
    found: dict[Sample, Point] = {}
    for sample in islice(samples, 2 * _LOOKED_AT):
        point = space.point(sample)
        if point is not None and point.sample not in known.ratios:
            found.setdefault(point.sample, point)
        if len(found) >= _LOOKED_AT:
            break
    return list(found.values())


def _by_loops(points: list[Point], known: TaskHistory, rng: Random) -> list[Point]:
    """Schedules by what is known of loops of all tasks, those first that promise most."""
    if not points:
        return []
    scores = scores_of_loops(known.examples, [p.features for p in points], rng)
    return [points[k] for k in sorted(range(len(points)), key=lambda k: -scores[k])]
