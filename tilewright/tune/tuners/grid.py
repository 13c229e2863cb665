"""All samples in order, from the rules' defaults outwards."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random

from tilewright.tune.spaces.space import Sample, Space
from tilewright.tune.tuners.tuner import TaskHistory


class GridTuner:
    """Takes every sample once, by increasing sum of positions, as rules rank their candidates."""

    def samples(self, space: Space, known: TaskHistory, rng: Random) -> Iterator[Sample]:
        del known, rng
        names = list(space.knobs)
        sizes = [len(space.knobs[n]) for n in names]
        for total in range(sum(sizes) - len(sizes) + 1):
            for positions in _with_sum(sizes, total):
                yield Sample.of(dict(zip(names, positions, strict=True)))


def _with_sum(sizes: Sequence[int], total: int) -> Iterator[tuple[int, ...]]:
    """All tuples of positions below these sizes whose sum is `total`."""
    if not sizes:
        if not total:
            yield ()
        return
    for first in range(min(total, sizes[0] - 1) + 1):
        for rest in _with_sum(sizes[1:], total - first):
            yield (first, *rest)
