"""What schedules a function: the default rules, or a recorded trace.

A scheduler turns a plain function into a `Schedule`, whose trace leads from one to the other. Its
`key` is text that identifies it in caches, and from which `scheduler_of` recreates it in another
process.

    made = RULES.schedule(function, target)
    print(made.trace)
    again = Recorded(made.trace).schedule(function, target)          the same loops
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from tilewright.ir import Function, with_plain_names
from tilewright.schedule.rules import Choices, apply_table, table_for
from tilewright.schedule.rules.analysis import is_scheduled
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.state import Declined
from tilewright.schedule.tensor_intrin import require_features
from tilewright.schedule.trace import Trace
from tilewright.support.errors import UserError, nearest
from tilewright.target import Target, verify_for

#: The attribute of a function whose recorded schedule does not apply; its value is the reason.
UNAPPLIED: Final = "unapplied"


class Scheduler(Protocol):
    """Makes schedules."""

    @property
    def key(self) -> str:
        """A text that `scheduler_of` reads."""
        ...

    def schedule(self, function: Function, target: Target) -> Schedule:
        """The function, scheduled for the target."""
        ...


@dataclass(frozen=True)
class Rules:
    """The default rules. `by_address` is for callers that pass addresses: parameters may change
    shape over the same memory. `taken` maps the names of choices to the positions of the candidates
    to take (see `offered`); other choices take the rules' defaults."""

    by_address: bool = False
    taken: Mapping[str, int] = field(default_factory=dict[str, int])

    @property
    def key(self) -> str:
        own = dict(sorted(self.taken.items()))
        return f"{'rules' if self.by_address else 'rules-by-shape'} {json.dumps(own)}"

    def schedule(self, function: Function, target: Target) -> Schedule:
        s, choices = Schedule(function), Choices(self.taken)
        self.decide(s, target, choices)
        for name in self.taken.keys() - choices.offered.keys():
            raise UserError(
                f"there is no choice {name} in the schedule of {function.name}",
                remedy=nearest(name, choices.offered),
            )
        return s

    def decide(self, s: Schedule, target: Target, choices: Choices) -> None:
        """Edit a schedule by the rules and these choices; `taken` is not used."""
        apply_table(s, table_for(target, by_address=self.by_address), target, choices)

    def offered(self, function: Function, target: Target) -> dict[str, tuple[object, ...]]:
        """The choices for a function: candidates by name, the default first."""
        choices = Choices(self.taken)
        self.decide(Schedule(function), target, choices)
        return choices.offered


@dataclass(frozen=True)
class Recorded:
    """A trace, replayed."""

    trace: Trace

    @property
    def key(self) -> str:
        return f"trace {json.dumps(self.trace.to_json(), sort_keys=True)}"

    def schedule(self, function: Function, target: Target) -> Schedule:
        del target
        return self.trace.replay(function)


@dataclass(frozen=True)
class Tuned:
    """A trace that a search found for loops with plain names (`ir.with_plain_names`). Where it no
    longer applies, the default rules do, and the function says why (`UNAPPLIED`)."""

    trace: Trace

    @property
    def key(self) -> str:
        return tuned_key(self.trace.to_json())

    def schedule(self, function: Function, target: Target) -> Schedule:
        try:
            made = self.trace.replay(with_plain_names(function))
            verify_for(made.function, target)
            require_features(made.function, target)
            return made
        except UserError as error:
            made = RULES_BY_ADDRESS.schedule(function, target)
            made.declined.append(Declined(UNAPPLIED, "", str(error).split("\n", 1)[0]))
            return made


def tuned_key(trace: Any) -> str:
    """The key of `Tuned` for a trace as `Trace.to_json` gives it, without parsing it."""
    return f"tuned {json.dumps(trace, sort_keys=True)}"


@dataclass(frozen=True)
class Given:
    """Leaves a function unchanged: the user has scheduled it."""

    @property
    def key(self) -> str:
        return "given"

    def schedule(self, function: Function, target: Target) -> Schedule:
        del target
        return Schedule(function)


_KINDS: Final[dict[str, Callable[[str], Scheduler]]] = {
    "rules": lambda text: Rules(by_address=True, taken=json.loads(text)),
    "rules-by-shape": lambda text: Rules(taken=json.loads(text)),
    "trace": lambda text: Recorded(Trace.from_json(text)),
    "tuned": lambda text: Tuned(Trace.from_json(text)),
    "given": lambda text: Given(),
}


def scheduler_of(key: str) -> Scheduler:
    """The scheduler with this key."""
    kind, _, text = key.partition(" ")
    if kind not in _KINDS:
        raise UserError(f"no scheduler {kind!r}", remedy=nearest(kind, _KINDS))
    return _KINDS[kind](text)


RULES: Final = Rules()
RULES_BY_ADDRESS: Final = Rules(by_address=True)


def schedule_by_rules(function: Function, target: Target, *, by_address: bool = False) -> Function:
    """`function` with the default schedule for `target`."""
    return function_of((RULES_BY_ADDRESS if by_address else RULES).schedule(function, target))


def function_of(s: Schedule) -> Function:
    """The scheduled function, with notes on blocks left with plain loops, and why."""
    plain = {b.name for b in s.blocks() if not is_scheduled(s, b.name)}
    unapplied = [r.reason for r in s.declined if r.rule == UNAPPLIED]
    declined = [r for r in s.declined if r.rule != UNAPPLIED]
    notes = [str(r) for r in declined if not r.block or r.block in plain]
    attrs = {"refused": notes} if notes else {}
    attrs |= {UNAPPLIED: unapplied[0]} if unapplied else {}
    return s.function.with_attrs(**attrs) if attrs else s.function
