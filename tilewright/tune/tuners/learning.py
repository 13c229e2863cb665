"""Cost models: gradient-boosted trees (LightGBM), trained on measurements, that rank samples.

There are two views of a sample. Its choices are known before it is scheduled, so that all samples
of a space can be ranked by them, but are specific to a task. Its loops require a schedule, but what
is learned from loops holds for all tasks.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from random import Random
from typing import Any, Final, cast

import numpy as np

from tilewright.support.errors import UserError
from tilewright.tune.spaces.space import Sample
from tilewright.tune.tuners.tuner import FAILED, Example

Array = np.ndarray[Any, Any]

#: The number of relevance grades for ranking loops.
_GRADES: Final = 15
_ROUNDS: Final = 60
#: Models of choices, each trained on a subset of measurements: their spread is the uncertainty.
_MODELS: Final = 4
#: The weight of the uncertainty in a sample's score.
_CURIOSITY: Final = 0.5
_TREES: Final[dict[str, Any]] = {
    "num_leaves": 15,
    "min_data_in_leaf": 2,
    "min_sum_hessian_in_leaf": 1e-6,
    "learning_rate": 0.1,
    "feature_fraction": 0.8,
    "num_threads": 1,
    "deterministic": True,
    "verbose": -1,
}
_RANKING: Final = {"objective": "lambdarank", "label_gain": list(range(_GRADES + 1))}
_REGRESSION: Final = {"objective": "regression", "bagging_fraction": 0.8, "bagging_freq": 1}


def lightgbm() -> Any:
    """The LightGBM package, which is optional."""
    try:
        return import_module("lightgbm")
    except (ImportError, OSError) as error:
        raise UserError(
            "the tuner gbt needs LightGBM",
            reason=str(error),
            remedy="install tilewright[tune], or take the tuner ga, annealing, random or grid",
        ) from None


# ---- choices ------------------------------------------------------------------------------------


def scores_of_choices(
    knobs: Mapping[str, Sequence[object]],
    ratios: Mapping[Sample, float],
    wanted: Sequence[Sample],
    rng: Random,
) -> list[float]:
    """Predicted scores of samples of a task, from its measured ones."""
    view = _ChoicesView(knobs)
    rows, speeds = view.rows(ratios), _log_speeds(list(ratios.values()))
    asked = view.rows(wanted)
    found = np.array([_regression(rows, speeds, asked, rng) for _ in range(_MODELS)])
    return [float(x) for x in found.mean(axis=0) + _CURIOSITY * found.std(axis=0)]


def _regression(rows: Array, values: Sequence[float], asked: Array, rng: Random) -> Array:
    library = lightgbm()
    data = library.Dataset(rows, label=values, params={"min_data_in_bin": 1, "verbose": -1})
    settings = {**_TREES, **_REGRESSION, "seed": rng.randrange(1 << 30)}
    return library.train(settings, data, num_boost_round=_ROUNDS).predict(asked)


def _log_speeds(ratios: Sequence[float]) -> list[float]:
    """Logarithms of speeds; failures rank below the slowest sample."""
    good = [-math.log(max(r, 1e-9)) for r in ratios if r < FAILED]
    worst = min(good, default=0.0) - 1.0
    return [-math.log(max(r, 1e-9)) if r < FAILED else worst for r in ratios]


class _ChoicesView:
    """Samples of a space as rows of numbers: the chosen values if these are numbers, else their
    positions."""

    def __init__(self, knobs: Mapping[str, Sequence[object]]) -> None:
        self._tables = [(name, _numbers(candidates)) for name, candidates in sorted(knobs.items())]

    def rows(self, samples: Iterable[Sample]) -> Array:
        return np.array([self._row(s.positions) for s in samples], float)

    def _row(self, positions: Mapping[str, int]) -> list[float]:
        return [
            x
            for name, table in self._tables
            for x in table[min(positions.get(name, 0), len(table) - 1)]
        ]


def _numbers(candidates: Sequence[object]) -> list[tuple[float, ...]]:
    found = [_parts(c) for c in candidates]
    lengths = {len(f) for f in found if f is not None}
    if None in found or len(lengths) != 1:
        return [(float(k),) for k in range(len(candidates))]
    return [f for f in found if f is not None]


def _parts(candidate: object) -> tuple[float, ...] | None:
    """The numbers that a candidate consists of, on a log2 scale; None if it is not numeric."""
    parts = cast("Sequence[object]", candidate) if isinstance(candidate, tuple) else (candidate,)
    if not all(isinstance(p, int | float) for p in parts):
        return None
    return tuple(math.log2(1 + abs(float(cast("float", p)))) for p in parts)


# ---- loops --------------------------------------------------------------------------------------


def scores_of_loops(
    examples: Sequence[Example], wanted: Sequence[Sequence[float]], rng: Random
) -> list[float]:
    """Predicted ranking scores of loops with these features, fastest highest (LambdaRank)."""
    library = lightgbm()
    by_task: dict[str, list[Example]] = {}
    for example in examples:
        by_task.setdefault(example.task, []).append(example)
    groups = list(by_task.values())
    rows = [e.features for group in groups for e in group]
    grades = [grade for group in groups for grade in _grades([e.ratio for e in group])]
    data = library.Dataset(
        np.asarray(rows), label=grades, group=[len(g) for g in groups], free_raw_data=True
    )
    settings = {**_TREES, **_RANKING, "seed": rng.randrange(1 << 30)}
    model = library.train(settings, data, num_boost_round=_ROUNDS)
    return [float(x) for x in model.predict(np.asarray(wanted))]


def _grades(ratios: Sequence[float]) -> list[int]:
    """Relevance grades by speed relative to the fastest; 0 for failures."""
    best = min(ratios)
    return [round(_GRADES * best / r) if r < FAILED else 0 for r in ratios]
