"""What a tuner is: it says which samples to measure next, given what is known so far.

Tuners keep nothing between calls: all that they know is in `TaskHistory`, which is filled from
records, so that a search that was interrupted goes on where it was.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Protocol

from tilewright.tune.spaces.space import Sample, Space

#: The ratio of what cannot be measured.
FAILED = float("inf")


@dataclass(frozen=True)
class Example:
    """A measurement of any task, as cost models learn from it."""

    task: str
    features: tuple[float, ...]
    ratio: float


@dataclass
class TaskHistory:
    """What is known of a task."""

    #: Times in that of the default schedule; `FAILED` where there is none.
    ratios: dict[Sample, float] = field(default_factory=dict[Sample, float])
    #: Measurements of this task and others.
    examples: Sequence[Example] = ()

    def ranked(self) -> list[tuple[Sample, float]]:
        """The samples that could be measured, the fastest first."""
        good = [(s, r) for s, r in self.ratios.items() if r < FAILED]
        return sorted(good, key=lambda pair: pair[1])


class Tuner(Protocol):
    """Searches a space."""

    def samples(self, space: Space, known: TaskHistory, rng: Random) -> Iterator[Sample]:
        """Samples in the order in which they should be measured, without an end if need be; those
        that are known already, illegal, or like others are left out by whoever asks."""
        ...


def random_sample(space: Space, rng: Random) -> Sample:
    """Any sample, all alike."""
    return Sample.of({name: rng.randrange(len(c)) for name, c in space.knobs.items()})


def mutated(sample: Sample, space: Space, rng: Random) -> Sample:
    """A sample with one choice made differently, or seldom two: mostly by a neighbour."""
    positions = sample.positions
    for _ in range(1 if rng.random() < 0.8 else 2):
        name = rng.choice(sorted(space.knobs))
        count = len(space.knobs[name])
        step = rng.choice((-1, 1)) if rng.random() < 0.6 else rng.randrange(1, count)
        positions[name] = (positions.get(name, 0) + step) % count
    return Sample.of(positions)


def crossed(a: Sample, b: Sample, rng: Random) -> Sample:
    """Each choice as one of the two has it."""
    one, other = a.positions, b.positions
    names = one.keys() | other.keys()
    return Sample.of({n: rng.choice((one, other)).get(n, 0) for n in sorted(names)})


def near_default(space: Space) -> Iterator[Sample]:
    """The default, and samples that differ from it in one choice, those that rules rank high first.

    Rules order their candidates by a model of the machine, so that these are good beginnings.
    """
    yield Sample()
    # Looking at samples may bring more choices.
    knobs = dict(space.knobs)
    longest = max((len(c) for c in knobs.values()), default=0)
    for position in range(1, longest):
        for name, candidates in knobs.items():
            if position < len(candidates):
                yield Sample.of({name: position})


def matching(space: Space, values: Mapping[str, str]) -> Sample:
    """The sample that makes choices by their text, as far as this space has them."""
    found: dict[str, int] = {}
    for name, text in values.items():
        texts = [str(c) for c in space.knobs.get(name, ())]
        if text in texts:
            found[name] = texts.index(text)
    return Sample.of(found)
