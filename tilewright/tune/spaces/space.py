"""The search space of a function: all schedules that a program with choices can make of it.

The program edits a schedule by primitives, and asks `Choices` for every decision: the default
rules, a template, or a sketch. A sample gives the position of each choice's candidate; position 0
is the program's default. Choices may depend on earlier ones, so the knobs of a space are discovered
on the way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

from tilewright.ir import Function
from tilewright.schedule import Choices, Schedule, Trace, function_of
from tilewright.support.errors import UserError
from tilewright.tune.features import features_of

#: Edits a schedule, and asks for every decision.
Program = Callable[[Schedule, Choices], None]


@dataclass(frozen=True)
class Sample:
    """Positions of candidates by choice name, sorted by name; default positions are left out."""

    taken: tuple[tuple[str, int], ...] = ()

    @staticmethod
    def of(positions: Mapping[str, int]) -> Sample:
        return Sample(tuple(sorted((name, k) for name, k in positions.items() if k)))

    @property
    def positions(self) -> dict[str, int]:
        return dict(self.taken)

    def __str__(self) -> str:
        return ", ".join(f"{name}={k}" for name, k in self.taken) or "the default"


@dataclass(frozen=True)
class Point:
    """A legal sample and its schedule."""

    #: The choices actually made: those that did not occur are left out.
    sample: Sample
    schedule: Schedule
    #: The chosen candidates as text.
    values: Mapping[str, str]

    @property
    def trace(self) -> Trace:
        return self.schedule.trace

    @cached_property
    def function(self) -> Function:
        return function_of(self.schedule)

    @cached_property
    def features(self) -> tuple[float, ...]:
        """Features for cost models."""
        return features_of(self.function)

    @cached_property
    def text(self) -> str:
        """The loops as text, equal for samples with the same loops."""
        return str(self.schedule.function)


class Space:
    """The schedules that a program makes of a function."""

    def __init__(self, function: Function, program: Program, *, holds_default: bool = True) -> None:
        self.function, self._program = function, program
        #: Whether its default sample is the baseline of measurements.
        self.holds_default = holds_default
        #: The candidates of each choice found so far.
        self.knobs: dict[str, tuple[object, ...]] = {}
        self._points: dict[Sample, Point | None] = {}
        self._declined: frozenset[str] = frozenset()
        self.default = self._default()

    def _default(self) -> Point:
        """The program's default, whose declined rules are then expected."""
        try:
            point = self._point_of(Sample())
        except UserError as error:
            raise UserError(
                f"the space of {self.function.name} is empty",
                reason=f"its own choices lead to no legal schedule: {error}",
                remedy="let the first candidate of every choice be one that is legal",
            ) from None
        self._declined = _declined(point)
        self._points[Sample()] = point
        return point

    @property
    def size(self) -> int:
        """The number of samples, as far as choices are known."""
        count = 1
        for candidates in self.knobs.values():
            count *= len(candidates)
        return count

    def point(self, sample: Sample) -> Point | None:
        """The schedule of a sample; None if it is illegal."""
        if sample not in self._points:
            self._points[sample] = self._legal(sample)
        return self._points[sample]

    def _legal(self, sample: Sample) -> Point | None:
        try:
            point = self._point_of(sample)
        except (UserError, ArithmeticError, LookupError, AssertionError, TypeError, ValueError):
            # A bug that only affects an unused schedule costs this sample, not the search.
            return None
        # A rule that newly declines leaves plain loops, which are not worth measuring.
        return None if _declined(point) - self._declined else point

    def _point_of(self, sample: Sample) -> Point:
        s, choices = Schedule(self.function), Choices(sample.positions, wraps=True)
        try:
            self._program(s, choices)
        finally:
            self._learn(choices.offered)
        taken = Sample.of(choices.made)
        values = {n: str(choices.offered[n][k]) for n, k in taken.taken}
        return Point(taken, s, values)

    def _learn(self, offered: Mapping[str, tuple[object, ...]]) -> None:
        for name, candidates in offered.items():
            if len(candidates) > len(self.knobs.get(name, ())) and len(candidates) > 1:
                self.knobs[name] = candidates


def _declined(point: Point) -> frozenset[str]:
    return frozenset(f"{d.rule}({d.block})" for d in point.schedule.declined)
