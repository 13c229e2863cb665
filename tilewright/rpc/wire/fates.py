"""How a session has ended: a kind for programs, and a text for people."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple, cast, get_args

#: crash: its process ended by a fault in what it ran; killed: by any other signal; time-out: a call
#: took too long; unknown: nobody could tell.
FateKind = Literal[
    "closed", "idle", "damaged", "rejected", "failed", "time-out", "crash", "killed", "unknown"
]
_KINDS: Final[tuple[str, ...]] = get_args(FateKind)


class Fate(NamedTuple):
    """Why a session has ended; the reason is empty if unknown."""

    kind: FateKind = "unknown"
    reason: str = ""

    @property
    def text(self) -> str:
        """The form that listeners answer with: the kind, a colon, and the reason."""
        return f"{self.kind}: {self.reason}" if self.reason else ""

    @staticmethod
    def of_text(text: str) -> Fate:
        """The inverse of `text`; without a known kind, all of it is the reason."""
        kind, colon, reason = text.partition(": ")
        if colon and kind in _KINDS:
            return Fate(cast("FateKind", kind), reason)
        return Fate("unknown", text)
