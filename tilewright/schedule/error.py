"""How a schedule refuses."""

from __future__ import annotations

from typing import NamedTuple

from tilewright.ir import Function, Stmt, listing
from tilewright.schedule.cursor import Tree
from tilewright.support.errors import UserError


class Fault(NamedTuple):
    """Why something is illegal: the reason, what would make it legal, and the culprit."""

    reason: str
    remedy: str = ""
    at: Stmt | None = None


class ScheduleError(UserError):
    """A primitive could not be applied; the function is unchanged.

    Cause: an argument that refers to nothing (a loop or block that no longer exists), or loops that
    do not allow it (`RefusedError`). Fix: what the remedy says.
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
        # Only when it is printed: the tuner discards most refusals unread.
        if self.at is not None and self.function is not None and not self.listing:
            self.listing = listing(self.function, {self.at: self.reason})
        return super().__str__()


class RefusedError(ScheduleError):
    """A primitive, or a rule, does not fit the present loops and blocks.

    Only this error tells a rule that it does not fit; any other error in a rule is a bug.
    """


def require(tree: Tree, what: str, *faults: Fault | None) -> None:
    """Refuse `what` with the first fault that is not None."""
    for fault in faults:
        if fault is not None:
            raise refusal(tree, what, fault)


def refusal(tree: Tree, what: str, fault: Fault) -> RefusedError:
    return RefusedError(
        what, reason=fault.reason, remedy=fault.remedy, function=tree.function, at=fault.at
    )
