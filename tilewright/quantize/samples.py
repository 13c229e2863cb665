"""The samples for calibration, and those for measuring the error."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from tilewright.quantize.data import Data
from tilewright.support.errors import UserError


@dataclass
class Samples:
    """The samples for calibration, and those for measuring the error."""

    calibration: Callable[[], Any]
    held_out: Callable[[], Any]
    is_apart: bool

    @staticmethod
    def of(data: Data, validation: Data) -> Samples:
        if data is not validation:
            return Samples(data.all, partial(validation.all, 1), True)
        if next(data.held_out(), None) is not None:
            return Samples(data.calibration, data.held_out, True)
        if next(data.all(), None) is None:
            raise UserError("there is no calibration data", reason="all batches are empty")
        warnings.warn(
            "there are too few samples to hold some out: the error is measured on what was"
            " calibrated with",
            stacklevel=5,
        )
        return Samples(data.all, partial(data.all, 1), False)
