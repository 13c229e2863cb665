"""All samples in order, from the rules' own choices outwards."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random

from tilewright.tune.spaces.space import Sample, Space
from tilewright.tune.tuners.tuner import TaskHistory


class GridTuner:
    """Takes every sample once: the sum of positions grows, since rules rank their candidates."""

    def samples(self, space: Space, known: TaskHistory, rng: Random) -> Iterator[Sample]:
        del known, rng
        names = list(space.knobs)
        sizes = [len(space.knobs[n]) for n in names]
        for total in range(sum(sizes) - len(sizes) + 1):
            for positions in _with_sum(sizes, total):
                yield Sample.of(dict(zip(names, positions, strict=True)))


def _with_sum(sizes: Sequence[int], total: int) -> Iterator[tuple[int, ...]]:
    """All positions below these sizes that add up to `total`."""
    if not sizes:
        if not total:
            yield ()
        return
    for first in range(min(total, sizes[0] - 1) + 1):
        for rest in _with_sum(sizes[1:], total - first):
            yield (first, *rest)
