"""What goes wrong, and how it is reported.

`UserError` is for what the caller can fix: the model, the schedule, the arguments, the file.
`InternalError` is our own fault and asks for a report. A message says: what failed (operation and
object), why (reason), what to do (remedy); then, where there is IR to show, the lines of it with
the culprit underlined.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


class TilewrightError(Exception):
    """Base class of all errors that Tilewright raises on purpose."""

    def __init__(self, what: str, *, reason: str = "", remedy: str = "", listing: str = "") -> None:
        self.what, self.reason, self.remedy, self.listing = what, reason, remedy, listing
        super().__init__(what)

    @property
    def headline(self) -> str:
        """What failed and why, without the rest."""
        return f"{self.what}: {self.reason}" if self.reason else self.what

    def __str__(self) -> str:
        text = self.headline
        if self.remedy:
            text += f"\n  remedy: {self.remedy}"
        if self.listing:
            text += "\n" + self.listing
        return text


class UserError(TilewrightError):
    """The request cannot be met as given; the message says how it could be."""


class InternalError(TilewrightError):
    """Tilewright itself is at fault.

    `support.faults` fills in where it happened; `reproducers` saves a file for the report.
    """

    def __init__(self, what: str, *, reason: str = "", remedy: str = "", listing: str = "") -> None:
        super().__init__(what, reason=reason, remedy=remedy, listing=listing)
        #: The steps it happened in, innermost first: {"node": …, "kernel": …, "pass": …}.
        self.places: dict[str, str] = {}
        #: The inputs of those steps, innermost first: loop functions, graphs, nodes of a model.
        self.subjects: list[Any] = []
        #: The file that reproduces the fault; None until one is saved.
        self.reproducer: str | None = None

    def __str__(self) -> str:
        lines = [super().__str__()]
        lines += [f"  in {named(kind, name)}" for kind, name in self.places.items()]
        lines.append("  this is a bug in Tilewright: please report it")
        if self.reproducer:
            lines[-1] += f", with the file {self.reproducer} (your weights are not in it)"
        return "\n".join(lines)


def named(kind: str, name: str) -> str:
    """`pass fuse`; a name that begins with its kind is used as it is."""
    return name if name.startswith(f"{kind} ") else f"{kind} {name}"


def nearest(name: object, candidates: Iterable[str], count: int = 3) -> str:
    """A remedy for a name that was not found: the closest known ones, or all if they are few."""
    import difflib

    known = sorted(set(candidates))
    close = difflib.get_close_matches(str(name), known, n=count, cutoff=0.5)
    if close:
        return "did you mean " + " or ".join(close) + "?"
    shown = ", ".join(known[:12]) + (", …" if len(known) > 12 else "")
    return f"known: {shown}" if known else "there are none"
