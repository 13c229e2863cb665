"""The settings of a search: time, tuner, and the file for measurements."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tilewright.support.errors import UserError
from tilewright.support.files import AnyPath
from tilewright.tune.measuring.measurer import Measurer

_UNITS: Final = {"s": 1.0, "m": 60.0, "h": 3600.0}


@dataclass(frozen=True)
class Settings:
    """The settings common to all searches."""

    #: Seconds to spend.
    budget: float
    records: AnyPath
    #: The name of a tuner; None: the best that is installed.
    tuner: str | None = None
    #: Most samples measured for each task.
    trials: int | None = None
    #: Files of records of other models or machines, whose best schedules are tried first.
    transfer: Sequence[AnyPath] = ()
    seed: int = 0
    #: Whether to show progress; None: if stderr is a terminal.
    progress: bool | None = None
    #: The measurer; None: this machine.
    measurer: Measurer | None = None

    def __post_init__(self) -> None:
        if self.trials is not None and self.trials < 1:
            raise UserError(f"cannot search with {self.trials} trials", remedy="allow at least one")


def seconds_of(budget: str | float) -> float:
    """The seconds of "90s", "10m", "1.5h", or of a number."""
    text = str(budget).strip().lower()
    unit = _UNITS.get(text[-1:])
    try:
        found = float(text[:-1]) * unit if unit else float(text)
    except ValueError:
        found = math.nan
    if not 0 < found < math.inf:
        raise UserError(
            f"{budget!r} is no time to spend", remedy="write 90s, 10m or 1.5h, or give seconds"
        )
    return found
