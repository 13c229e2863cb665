"""Named choices for schedules: numbers, splits, orders and annotations."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod
from typing import Final, Literal, TypeVar

from tilewright.ir import Const
from tilewright.schedule import Choices, Loop, Schedule

#: The options of `annotate`.
Way = Literal["vectorize", "unroll", "parallel", "none"]
#: Factors of a split, the most likely first.
_FACTORS: Final[tuple[int, ...]] = (8, 4, 16, 2, 32, 1, 64)
#: Most candidates of a split.
_MOST: Final = 64

Option = TypeVar("Option")


class Knobs:
    """The choices of a template, applied to the schedule that it edits; the first candidate of each
    is the default."""

    def __init__(self, s: Schedule, choices: Choices) -> None:
        self._s, self._choices = s, choices

    def choice(self, name: str, candidates: Sequence[Option]) -> Option:
        """One of some values."""
        return self._choices.choose(name, candidates)

    def split(
        self,
        name: str,
        loop: Loop,
        parts: int = 2,
        factors: Sequence[int | tuple[int, ...]] | None = None,
    ) -> tuple[Loop, ...]:
        """Split a loop into `parts`, outermost first; `factors` are candidates for the extents of
        all but the outermost."""
        candidates = [f if isinstance(f, tuple) else (f,) for f in factors or ()]
        taken = self._choices.choose(name, candidates or self._factors(loop, parts - 1))
        return self._s.split(loop, None, *taken)

    def reorder(self, name: str, orders: Sequence[Sequence[Loop]]) -> None:
        """Reorder loops by one of several orders."""
        numbers = list(range(len(orders)))
        self._s.reorder(*orders[self._choices.choose(name, numbers)])

    def annotate(
        self, name: str, loop: Loop, ways: Sequence[Way] = ("vectorize", "unroll", "none")
    ) -> None:
        """Annotate a loop in one of several ways."""
        way = self._choices.choose(name, ways)
        if way != "none":
            getattr(self._s, way)(loop)

    def _factors(self, loop: Loop, count: int) -> list[tuple[int, ...]]:
        extent = self._s.loop_of(loop).extent
        most = int(extent.value) if isinstance(extent, Const) else max(_FACTORS)
        all_of_them: list[tuple[int, ...]] = list(product(_FACTORS, repeat=count))
        found = [f for f in all_of_them if prod(f) <= most]
        # Combinations of likely factors come first.
        found.sort(key=lambda f: sum(map(_FACTORS.index, f)))
        return found[:_MOST] or [(1,) * count]
