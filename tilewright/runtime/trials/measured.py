"""What comes of a candidate, and by how much it must be faster to take the default's place."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import Any, Final, Literal, get_args

from tilewright.support.errors import TilewrightError, UserError

#: Why there is no time: it was not compiled, ended its process, did not end, computed something
#: else than the default schedule, wanted too much memory, or stopped with an error of its own.
#: "lost": the device that was to measure it is gone; "killed": its process there was ended from
#: outside. Neither says anything about the candidate, so that another device measures it.
Failure = Literal["build", "crash", "time-out", "wrong answer", "memory", "error", "lost", "killed"]

#: Rounds of a trial, and of a verdict.
SHORT: Final = 5
LONG: Final = 15
#: By how much a winner must be faster than the default, at least; what is less may be noise.
MARGIN: Final = 0.02


class TrialError(UserError):
    """An error that says what it means for a candidate that was being measured."""

    @property
    def failure(self) -> Failure:
        raise NotImplementedError


@dataclass(frozen=True)
class Measured:
    """A candidate beside the default schedule, in interleaved calls."""

    #: The candidate's least seconds over the default's, round by round.
    ratios: tuple[float, ...] = ()
    #: The least seconds of a call, of the candidate and of the default.
    seconds: float = 0.0
    reference: float = 0.0
    failure: Failure | None = None
    reason: str = ""

    @property
    def is_lost(self) -> bool:
        """Whether it was not measured for a reason that may be the device's own."""
        return self.failure in ("lost", "killed")

    @property
    def ratio(self) -> float:
        """The candidate's time in that of the default: less than one is faster."""
        return median(self.ratios)

    @property
    def upper(self) -> float:
        """What three of four rounds stay below."""
        ranked = sorted(self.ratios)
        return ranked[min(len(ranked) - 1, (3 * len(ranked)) // 4)]

    def is_promising(self, best: float) -> bool:
        """Whether a trial says that it is worth a verdict, where the best so far takes `best`."""
        return self.failure is None and self.ratio < best * (1 - MARGIN)

    def wins(self, best: float) -> bool:
        """Whether a verdict says that it is faster by more than noise."""
        return self.failure is None and self.upper < best * (1 - MARGIN)

    @staticmethod
    def of_error(error: TilewrightError) -> Measured:
        """What an error says of the candidate in whose trial it was raised."""
        failure: Failure = error.failure if isinstance(error, TrialError) else "error"
        return Measured(failure=failure, reason=str(error).split("\n", 1)[0])

    def as_data(self) -> dict[str, Any]:
        """All of it in types that JSON has."""
        if self.failure:
            return {"failure": self.failure, "reason": self.reason}
        times = {"seconds": self.seconds, "reference": self.reference}
        return {"ratios": list(self.ratios), **times}

    @staticmethod
    def of_data(data: Any) -> Measured:
        """What `as_data` gave; an error where it is nothing of the kind."""
        try:
            return _measured(data)
        except (ValueError, TypeError, AttributeError, OverflowError):
            return _NONSENSE

    @property
    def of_candidate(self) -> Measured:
        """The same as the answer for a candidate, which has times or a reason for having none."""
        return self if self.failure or self.ratios else _NONSENSE


_NONSENSE: Final = Measured(failure="error", reason="the answer makes no sense")


def _measured(data: Any) -> Measured:
    ratios = tuple(positive(r) for r in data.get("ratios", ()))
    # Beginning a task gives the default's seconds alone.
    read = positive if ratios else _number
    seconds, reference = read(data.get("seconds", 0.0)), read(data.get("reference", 0.0))
    failure = data.get("failure")
    if failure is not None and failure not in get_args(Failure):
        raise ValueError
    return Measured(ratios, seconds, reference, failure, str(data.get("reason", ""))[:2000])


def positive(value: Any) -> float:
    """A time, or a ratio of two; an error where it is none."""
    if (number := _number(value)) == 0:
        raise ValueError
    return number


def _number(value: Any) -> float:
    number = float(value)
    if not 0 <= number < float("inf"):
        raise ValueError
    return number
