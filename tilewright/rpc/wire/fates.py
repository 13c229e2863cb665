"""How a session has ended: a kind for programs, and words for people."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple, cast, get_args

#: crash: its process ended by a fault in what it ran; killed: by any other signal; time-out: a call
#: took too long; unknown: nobody could say.
FateKind = Literal[
    "closed", "idle", "damaged", "rejected", "failed", "time-out", "crash", "killed", "unknown"
]
_KINDS: Final[tuple[str, ...]] = get_args(FateKind)


class Fate(NamedTuple):
    """Why a session has ended; the words are empty where that is not known."""

    kind: FateKind = "unknown"
    reason: str = ""

    @property
    def text(self) -> str:
        """What listeners answer: the kind, a colon, and the words."""
        return f"{self.kind}: {self.reason}" if self.reason else ""

    @staticmethod
    def of_text(text: str) -> Fate:
        """The inverse of `text`; what begins with no known kind is words alone."""
        kind, colon, reason = text.partition(": ")
        if colon and kind in _KINDS:
            return Fate(cast("FateKind", kind), reason)
        return Fate("unknown", text)
