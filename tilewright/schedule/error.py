"""How a schedule says no."""

from __future__ import annotations

from typing import NamedTuple

from tilewright.ir import Function, Stmt, listing
from tilewright.schedule.cursor import Tree
from tilewright.support.errors import UserError


class Fault(NamedTuple):
    """Why something is not legal: the reason, what would make it legal, and the culprit."""

    reason: str
    remedy: str = ""
    at: Stmt | None = None


class ScheduleError(UserError):
    """A primitive could not be applied; the function is as it was.

    Cause: an argument that names nothing (a loop that is gone, a block that is not there), or loops
    that do not allow it (`RefusedError`). Fix: what the remedy says.
    """

    def __init__(
        self,
        what: str,
        *,
        reason: str = "",
        remedy: str = "",
        function: Function | None = None,
        at: Stmt | None = None,
    ) -> None:
        super().__init__(what, reason=reason, remedy=remedy)
        self.function, self.at = function, at

    def __str__(self) -> str:
        # Printed only on demand: the tuner discards most refusals unread.
        if self.at is not None and self.function is not None and not self.listing:
            self.listing = listing(self.function, {self.at: self.reason})
        return super().__str__()


class RefusedError(ScheduleError):
    """A primitive, or a rule, does not fit the loops and blocks as they stand.

    This alone is how a rule learns that it does not fit; every other error in one is a fault.
    """


def require(tree: Tree, what: str, *faults: Fault | None) -> None:
    """Refuse to do `what` for the first of the faults that is one."""
    for fault in faults:
        if fault is not None:
            raise refusal(tree, what, fault)


def refusal(tree: Tree, what: str, fault: Fault) -> RefusedError:
    return RefusedError(
        what, reason=fault.reason, remedy=fault.remedy, function=tree.function, at=fault.at
    )
