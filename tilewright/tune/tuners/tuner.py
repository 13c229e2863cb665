"""The interface of a tuner, which proposes the samples to measure next, given the history.

Tuners have no state: everything they use is in `TaskHistory`, which is filled from records, so that
an interrupted search can be resumed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Protocol

from tilewright.tune.spaces.space import Sample, Space

#: The ratio of candidates that cannot be measured.
FAILED = float("inf")


@dataclass(frozen=True)
class Example:
    """A measurement of any task, as training data for cost models."""

    task: str
    features: tuple[float, ...]
    ratio: float


@dataclass
class TaskHistory:
    """The measurements of a task."""

    #: Times relative to the default schedule's; `FAILED` for failures.
    ratios: dict[Sample, float] = field(default_factory=dict[Sample, float])
    #: Measurements of this task and others.
    examples: Sequence[Example] = ()

    def ranked(self) -> list[tuple[Sample, float]]:
        """The samples without failures, fastest first."""
        good = [(s, r) for s, r in self.ratios.items() if r < FAILED]
        return sorted(good, key=lambda pair: pair[1])


class Tuner(Protocol):
    """Proposes samples of a space."""

    def samples(self, space: Space, known: TaskHistory, rng: Random) -> Iterator[Sample]:
        """Samples in the order in which they should be measured, possibly endless; the caller skips
        those that are known, illegal, or have equal loops."""
        ...


def random_sample(space: Space, rng: Random) -> Sample:
    """A uniformly random sample."""
    return Sample.of({name: rng.randrange(len(c)) for name, c in space.knobs.items()})


def mutated(sample: Sample, space: Space, rng: Random) -> Sample:
    """A sample with one choice changed, or rarely two: mostly to a neighbour."""
    positions = sample.positions
    for _ in range(1 if rng.random() < 0.8 else 2):
        name = rng.choice(sorted(space.knobs))
        count = len(space.knobs[name])
        step = rng.choice((-1, 1)) if rng.random() < 0.6 else rng.randrange(1, count)
        positions[name] = (positions.get(name, 0) + step) % count
    return Sample.of(positions)


def crossed(a: Sample, b: Sample, rng: Random) -> Sample:
    """Each choice from one of the two at random."""
    one, other = a.positions, b.positions
    names = one.keys() | other.keys()
    return Sample.of({n: rng.choice((one, other)).get(n, 0) for n in sorted(names)})


def near_default(space: Space) -> Iterator[Sample]:
    """The default, and samples that differ from it in one choice, highest-ranked candidates first.

    Rules rank their candidates by a model of the machine, so these are good starting points.
    """
    yield Sample()
    # Evaluating samples may discover more choices.
    knobs = dict(space.knobs)
    longest = max((len(c) for c in knobs.values()), default=0)
    for position in range(1, longest):
        for name, candidates in knobs.items():
            if position < len(candidates):
                yield Sample.of({name: position})


def matching(space: Space, values: Mapping[str, str]) -> Sample:
    """The sample with choices by their text, as far as this space has them."""
    found: dict[str, int] = {}
    for name, text in values.items():
        texts = [str(c) for c in space.knobs.get(name, ())]
        if text in texts:
            found[name] = texts.index(text)
    return Sample.of(found)
