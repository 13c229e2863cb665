"""What a rule of the default schedules is: what it matches, decides, and does."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from tilewright.schedule.error import RefusedError
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.state import Declined
from tilewright.support.errors import InternalError, UserError
from tilewright.target import Target

#: The most candidates offered for a choice.
MOST: Final = 16

Found = TypeVar("Found")
Plan = TypeVar("Plan")
Option = TypeVar("Option")


class Choices:
    """The decisions of plans by name. Each has candidates, the rule's default first.

    `taken` overrides decisions by the candidate's position. `offered` records the candidates, so
    that a search can try others, and `made` the positions used. Candidates depend on earlier
    decisions: with `wraps`, positions count modulo their number, so that a search need not know it.
    """

    def __init__(self, taken: Mapping[str, int] | None = None, *, wraps: bool = False) -> None:
        self.taken, self.wraps = dict(taken or {}), wraps
        self.offered: dict[str, tuple[object, ...]] = {}
        self.made: dict[str, int] = {}
        self._scope = ""

    def within(self, scope: str) -> Choices:
        """The same choices for one rule's plan, with names prefixed by `scope`."""
        inner = Choices(wraps=self.wraps)
        inner.taken, inner.offered, inner.made = self.taken, self.offered, self.made
        inner._scope = f"{scope}."
        return inner

    def choose(self, name: str, candidates: Sequence[Option]) -> Option:
        """The chosen candidate: the first, unless `taken` says otherwise."""
        key = self._scope + name
        self.offered[key] = tuple(candidates)
        number = self.taken.get(key, 0)
        if self.wraps:
            number %= len(candidates)
        if 0 <= number < len(candidates):
            self.made[key] = number
            return candidates[number]
        raise UserError(
            f"the choice {key} has no candidate {number}",
            reason=f"there are {len(candidates)}",
            remedy="take one of those that the rules offer for this function and target",
        )


@dataclass(frozen=True)
class Rule(Generic[Found, Plan]):
    """A way to schedule a block, or a whole function (with an empty block name).

    match   finds what the rule is for in the present schedule; None if it does not apply
    plan    decides how: every decision with alternatives is a choice; None where one of them was
            not to apply the rule
    apply   calls the primitives; where one refuses, the schedule is restored

    Where only the first steps show what there is to decide, `match` takes these on a copy of the
    schedule, and `apply` continues from there (`Schedule.restore`).
    """

    name: str
    match: Callable[[Schedule, str, Target], Found | None]
    plan: Callable[[Found, Target, Choices], Plan | None]
    apply: Callable[[Schedule, str, Plan, Target], None]

    def attempt(self, s: Schedule, block: str, target: Target, choices: Choices) -> bool:
        """Whether the rule applies to this block and no primitive refused; edits the schedule.

        Rules decide what is fast, primitives what is correct: a block that a rule does not fit
        keeps its loops, and `inspect --schedule` shows that. Any other error is a bug in the rule.
        """
        try:
            plan = self.planned(s, block, target, choices)
        except RefusedError as error:
            s.declined.append(_declined(self.name, block, error))
            return False
        if plan is None:
            return False
        return tried(s, self.name, block, lambda: self.apply(s, block, plan, target))

    def planned(
        self, s: Schedule, block: str, target: Target, choices: Choices | None = None
    ) -> Plan | None:
        """The plan for a block; None where the rule does not apply."""
        try:
            found = self.match(s, block, target)
        except RefusedError:
            raise
        except UserError as error:
            raise _at_fault(self.name, block, error) from error
        if found is None:
            return None
        named = (choices or Choices()).within(f"{self.name}({block})")
        return self.plan(found, target, named)


def tried(s: Schedule, rule: str, block: str, edit: Callable[[], None]) -> bool:
    """Apply `edit` to the schedule; if a primitive refuses, undo it and give False."""
    before = s.copy()
    try:
        edit()
    except RefusedError as error:
        s.restore(before)
        s.declined.append(_declined(rule, block, error))
        return False
    except UserError as error:
        raise _at_fault(rule, block, error) from error
    return True


def _at_fault(rule: str, block: str, error: UserError) -> InternalError:
    where = f"{rule} of {block}" if block else rule
    return InternalError(f"the rule {where} is at fault", reason=str(error))


def _declined(rule: str, block: str, error: RefusedError) -> Declined:
    return Declined(rule, block, error.headline.split("\n", 1)[0])


def if_wanted(found: Found, _target: Target, choices: Choices) -> Found | None:
    """The plan of a rule whose only decision is whether to apply it."""
    return found if choices.choose("applied", (True, False)) else None


def as_found(found: Found, _target: Target, _choices: Choices) -> Found:
    """The plan of a rule without decisions."""
    return found
