"""Machine parameters as choices, since those that the default rules rely on may be wrong.

Rules size tiles, chunks and packing by cache sizes, the number of multiply-add ports, and the
vector width. A search that may vary these finds what the rules would do with better values;
measurements decide, not the description.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cache
from typing import Final

from tilewright.ir import Function
from tilewright.schedule import RULES_BY_ADDRESS, Choices, Schedule
from tilewright.support.config import format_size
from tilewright.support.errors import UserError
from tilewright.target import Target


@dataclass(frozen=True)
class Figure:
    """A parameter of a target, and its alternative values."""

    name: str
    #: The target's own value comes first.
    values: Callable[[Target], tuple[int, ...]]
    exchanged: Callable[[Target, int], Target]

    def choose(self, target: Target, choices: Choices) -> Target:
        """The target with the chosen value."""
        # As text, which is comparable between searches.
        by_word = {format_size(value): value for value in self.values(target)}
        word = choices.choose(f"machine.{self.name}", tuple(by_word))
        return self.by(target, by_word[word])

    def by(self, target: Target, value: int) -> Target:
        """The target with this value."""
        return target if value == self.values(target)[0] else self.exchanged(target, value)

    def others(self, target: Target) -> list[Target]:
        """The target with each of the other values."""
        return [self.exchanged(target, value) for value in self.values(target)[1:]]


def _cache(name: str) -> Figure:
    return Figure(
        name,
        lambda target: _sizes(getattr(target.caches, name)),
        lambda target, size: replace(target, caches=target.caches._replace(**{name: size})),
    )


def _sizes(own: int) -> tuple[int, ...]:
    return (own, own * 2, own // 2, own * 4) if own else (own,)


def _ports(target: Target) -> tuple[int, ...]:
    own = target.fma_ports
    return tuple(dict.fromkeys((own, max(1, own // 2), own * 2)))


VECTORS: Final = Figure("vectors", lambda t: t.vector_widths, lambda t, bits: t.with_vectors(bits))
PORTS: Final = Figure("fma_ports", _ports, lambda t, ports: replace(t, ports=ports))
CACHES: Final = tuple(map(_cache, ("l1d", "l2", "l3")))


class Figures:
    """The parameters that affect the loops that the rules make of a function."""

    def __init__(self, function: Function) -> None:
        self._function = function
        self._loops = cache(self._made)
        self._that_matter = cache(self._found)

    def choose(self, target: Target, choices: Choices) -> Target:
        """The target with the chosen parameters; vectors first, as others may depend on them."""
        if target.kind.device != "cpu":
            return target
        if self._differ(target, VECTORS.others(target)):
            target = VECTORS.choose(target, choices)
        for figure in self._that_matter(target):
            target = figure.choose(target, choices)
        return target

    def _found(self, target: Target) -> list[Figure]:
        """The parameters that matter, except vectors."""
        caches = CACHES if self._differ(target, _all_caches(target)) else ()
        return [f for f in (PORTS, *caches) if self._differ(target, f.others(target))]

    def _differ(self, target: Target, others: Iterable[Target]) -> bool:
        own = self._loops(target)
        return any(self._loops(other) != own for other in others)

    def _made(self, target: Target) -> str | None:
        """The loops that the rules make of the function; None if they fail."""
        s = Schedule(self._function)
        try:
            RULES_BY_ADDRESS.decide(s, target, Choices())
        except UserError:
            return None
        return str(s.function)


def _all_caches(target: Target) -> list[Target]:
    """The target with all caches changed at once, mostly enough to tell whether any matters."""
    made: list[Target] = []
    for number in range(1, max(len(f.values(target)) for f in CACHES)):
        other = target
        for figure in CACHES:
            values = figure.values(target)
            other = figure.by(other, values[min(number, len(values) - 1)])
        made.append(other)
    return made
