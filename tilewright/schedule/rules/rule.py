"""What a rule of the default schedules is: what it is for, what it decides, and what it does."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from tilewright.schedule.error import RefusedError
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.state import Declined
from tilewright.support.errors import InternalError, UserError
from tilewright.target import Target

#: Candidates that a choice has at most, where there are many.
MOST: Final = 16

Found = TypeVar("Found")
Plan = TypeVar("Plan")
Option = TypeVar("Option")


class Choices:
    """The decisions of plans by name. Each has candidates, of which the rule's own comes first.

    `taken` says by position which candidate a decision takes instead; `offered` is what there was
    to choose from, so that a search can take others, and `made` the positions that were taken. What
    is there to choose depends on decisions before it: with `wraps`, positions count from the
    beginning again after the last, so that a search need not know how many there are.
    """

    def __init__(self, taken: Mapping[str, int] | None = None, *, wraps: bool = False) -> None:
        self.taken, self.wraps = dict(taken or {}), wraps
        self.offered: dict[str, tuple[object, ...]] = {}
        self.made: dict[str, int] = {}
        self._scope = ""

    def within(self, scope: str) -> Choices:
        """The same choices for the plan of one rule, under names that begin with `scope`."""
        inner = Choices(wraps=self.wraps)
        inner.taken, inner.offered, inner.made = self.taken, self.offered, self.made
        inner._scope = f"{scope}."
        return inner

    def choose(self, name: str, candidates: Sequence[Option]) -> Option:
        """The candidate that is taken: the first, unless `taken` names another."""
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
    """A way to schedule a block, or a whole function: the name of the block is empty then.

    match   what the rule is for, found in the schedule as it stands; None where that is not there
    plan    how it is to be done: every decision that others could take differently is a choice;
            None where one of them is to leave the rule out
    apply   the primitives that do it; where one refuses, the schedule is as it was before

    Where only the first steps show what there is to decide, `match` takes these on a copy of the
    schedule, and `apply` goes on from there (`Schedule.restore`).
    """

    name: str
    match: Callable[[Schedule, str, Target], Found | None]
    plan: Callable[[Found, Target, Choices], Plan | None]
    apply: Callable[[Schedule, str, Plan, Target], None]

    def attempt(self, s: Schedule, block: str, target: Target, choices: Choices) -> bool:
        """Whether the rule is for this block and no primitive refused; the schedule is edited.

        Rules say what is fast, primitives what is right: a block that a rule does not fit keeps its
        loops, and `inspect --schedule` shows that. Any other error is a fault of the rule.
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
        """The plan for a block; None where the rule is not for it."""
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
    """Whether no primitive refused what `edit` does to the schedule; else that is undone."""
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
    """The plan of a rule that may be left out: whether it is applied is all there is to decide."""
    return found if choices.choose("applied", (True, False)) else None


def as_found(found: Found, _target: Target, _choices: Choices) -> Found:
    """The plan of a rule that has nothing to decide."""
    return found
