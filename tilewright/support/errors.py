"""What goes wrong, and how it is told.

`UserError` is for what the caller can mend: the model, the schedule, the arguments, the file.
`InternalError` is our own fault and asks for a report. A message reads: what failed (operation and
object), why (reason), what to do (remedy); then, where there is IR to show, the lines of it with
the culprit underlined.
"""

from __future__ import annotations

from collections.abc import Iterable


class TilewrightError(Exception):
    """Base of all errors that Tilewright raises on purpose."""

    def __init__(self, what: str, *, reason: str = "", remedy: str = "", listing: str = "") -> None:
        self.what, self.reason, self.remedy, self.listing = what, reason, remedy, listing
        super().__init__(what)

    def __str__(self) -> str:
        text = f"{self.what}: {self.reason}" if self.reason else self.what
        if self.remedy:
            text += f"\n  remedy: {self.remedy}"
        if self.listing:
            text += "\n" + self.listing
        return text


class UserError(TilewrightError):
    """The request cannot be met as given; the message says how it could be."""


class InternalError(TilewrightError):
    """Tilewright itself is at fault."""

    def __str__(self) -> str:
        return super().__str__() + "\n  this is a bug in Tilewright: please report it"


def nearest(name: str, candidates: Iterable[str], count: int = 3) -> str:
    """A remedy for a name that was not found: the closest known ones, or all if they are few."""
    import difflib

    known = sorted(set(candidates))
    close = difflib.get_close_matches(name, known, n=count, cutoff=0.5)
    if close:
        return "did you mean " + " or ".join(close) + "?"
    shown = ", ".join(known[:12]) + (", …" if len(known) > 12 else "")
    return f"known: {shown}" if known else "there are none"
