"""The result of measuring a candidate, and the margin by which it must beat the default."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import Any, Final, Literal, get_args

from tilewright.support.errors import TilewrightError, UserError

#: Why there is no time: compilation failed, its process crashed, it did not end, its results differ
#: from the default's, it needed too much memory, or it raised an error of its own.
#: "lost": the measuring device is gone; "killed": its process there was ended from outside. Neither
#: says anything about the candidate, so another device measures it again.
Failure = Literal["build", "crash", "time-out", "wrong answer", "memory", "error", "lost", "killed"]

#: Rounds of a trial, and of a verdict.
SHORT: Final = 5
LONG: Final = 15
#: The margin by which a winner must be faster than the default; less may be noise.
MARGIN: Final = 0.02


class TrialError(UserError):
    """An error with its meaning for the candidate that was being measured."""

    @property
    def failure(self) -> Failure:
        raise NotImplementedError


@dataclass(frozen=True)
class Measured:
    """A candidate timed against the default schedule, in interleaved calls."""

    #: The candidate's minimum time over the default's, for each round.
    ratios: tuple[float, ...] = ()
    #: The minimum seconds of a call, of the candidate and of the default.
    seconds: float = 0.0
    reference: float = 0.0
    failure: Failure | None = None
    reason: str = ""

    @property
    def is_lost(self) -> bool:
        """Whether the failure may be the device's, not the candidate's."""
        return self.failure in ("lost", "killed")

    @property
    def ratio(self) -> float:
        """The candidate's time relative to the default's: less than one is faster."""
        return median(self.ratios)

    @property
    def upper(self) -> float:
        """The upper quartile of the rounds' ratios."""
        ranked = sorted(self.ratios)
        return ranked[min(len(ranked) - 1, (3 * len(ranked)) // 4)]

    def is_promising(self, best: float) -> bool:
        """Whether a trial justifies a verdict, given the best ratio so far."""
        return self.failure is None and self.ratio < best * (1 - MARGIN)

    def wins(self, best: float) -> bool:
        """Whether a verdict is faster than the best ratio by more than noise."""
        return self.failure is None and self.upper < best * (1 - MARGIN)

    @staticmethod
    def of_error(error: TilewrightError) -> Measured:
        """The result for a candidate whose trial raised this error."""
        failure: Failure = error.failure if isinstance(error, TrialError) else "error"
        return Measured(failure=failure, reason=str(error).split("\n", 1)[0])

    def as_data(self) -> dict[str, Any]:
        """All fields, in JSON types."""
        if self.failure:
            return {"failure": self.failure, "reason": self.reason}
        times = {"seconds": self.seconds, "reference": self.reference}
        return {"ratios": list(self.ratios), **times}

    @staticmethod
    def of_data(data: Any) -> Measured:
        """The result from `as_data`; an error if the data is invalid."""
        try:
            return _measured(data)
        except (ValueError, TypeError, AttributeError, OverflowError):
            return _NONSENSE

    @property
    def of_candidate(self) -> Measured:
        """The result, which for a candidate must have times or a failure."""
        return self if self.failure or self.ratios else _NONSENSE


_NONSENSE: Final = Measured(failure="error", reason="the answer makes no sense")


def _measured(data: Any) -> Measured:
    ratios = tuple(positive(r) for r in data.get("ratios", ()))
    # The answer to beginning a task has the default's seconds alone.
    read = positive if ratios else _number
    seconds, reference = read(data.get("seconds", 0.0)), read(data.get("reference", 0.0))
    failure = data.get("failure")
    if failure is not None and failure not in get_args(Failure):
        raise ValueError
    return Measured(ratios, seconds, reference, failure, str(data.get("reason", ""))[:2000])


def positive(value: Any) -> float:
    """A positive time or ratio; raises otherwise."""
    if (number := _number(value)) == 0:
        raise ValueError
    return number


def _number(value: Any) -> float:
    number = float(value)
    if not 0 <= number < float("inf"):
        raise ValueError
    return number
