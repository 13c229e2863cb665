"""All tuners by name."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Final

from tilewright.support.errors import UserError, nearest
from tilewright.tune.tuners.annealing import AnnealingTuner
from tilewright.tune.tuners.genetic import GeneticTuner
from tilewright.tune.tuners.grid import GridTuner
from tilewright.tune.tuners.random import RandomTuner
from tilewright.tune.tuners.trees import TreeTuner
from tilewright.tune.tuners.tuner import Tuner

TUNERS: Final[dict[str, Callable[[], Tuner]]] = {
    "gbt": TreeTuner,
    "ga": GeneticTuner,
    "annealing": AnnealingTuner,
    "random": RandomTuner,
    "grid": GridTuner,
}


def tuner_of(name: str | None) -> Tuner:
    """The tuner of this name; None: `gbt` if available, else `ga`."""
    if name is None:
        try:
            return TreeTuner()
        except UserError as error:
            warnings.warn(f"searching with ga: {error}", stacklevel=2)
            return GeneticTuner()
    if name not in TUNERS:
        raise UserError(f"there is no tuner {name!r}", remedy=nearest(name, TUNERS))
    return TUNERS[name]()
