"""Winners must win inside the model: those that are slower there lose, with all before them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

import tilewright as tw
from tests.tune.test_tune import Pretending, compiled, network
from tilewright.graph import PassContext
from tilewright.schedule import Recorded, Trace
from tilewright.tune import best_records, read_records
from tilewright.tune.in_place import InPlace, Schedulers
from tilewright.tune.in_turns import InTurns
from tilewright.tune.search import search
from tilewright.tune.settings import Settings
from tilewright.tune.spaces.table import space_named
from tilewright.tune.tasks import tasks_of

INPUTS = {"x": np.ones((24, 48), np.float32)}


class Told:
    """Says what kernels take in the model, by the order of their keys; runs nothing."""

    def __init__(self, *ratios: float) -> None:
        self.told, self.asked = ratios, dict[str, str]()

    def ratios(self, found: Schedulers) -> dict[str, float]:
        (self.asked,) = map(dict, found.values())
        return dict(zip(keys(), self.told, strict=True))


def keys() -> list[str]:
    return sorted(t.key for t in tasks_of(compiled(), INPUTS))


def searched(path: Path, in_place: Told, trials: int = 6) -> Any:
    space_of = space_named("rules")
    settings = Settings(100, path, "ga", trials, measurer=Pretending())
    tasks = sorted(tasks_of(compiled(), INPUTS), key=lambda t: t.key)
    return search(
        tasks,
        lambda t: space_of(t.function, t.target),
        settings,
        "rules",
        cast("InPlace", in_place),
    )


def test_those_that_are_slower_in_the_model_lose(tmp_path: Path) -> None:
    slower, faster = keys()
    path, told = tmp_path / "r.jsonl", Told(1.2, 0.9)
    summary = searched(path, told)
    assert set(told.asked) == {slower, faster}
    (found,) = best_records(read_records(path)).values()
    assert set(found) == {faster}
    gains = {t.key: t.gain for t in summary.tasks}
    assert gains[slower] == 1.0 and gains[faster] == pytest.approx(1 / 0.9)


def test_nothing_is_left_where_all_are_slower(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    assert searched(path, Told(1.0, 1.5)).gain == 1.0
    assert not best_records(read_records(path))
    again = Told(1.0, 1.5)
    assert searched(path, again).trials == 0 and not again.asked


def test_models_run_in_turns() -> None:
    def made(found: Schedulers) -> Any:
        with PassContext(schedulers=found):
            return tw.compile(network())

    model = compiled()
    first, second = keys()
    plain_loops = {model.target.machine: {first: Recorded(Trace()).key}}
    found = InPlace(model, InTurns(INPUTS), made).ratios(plain_loops)
    assert set(found) == {first, second} and found[first] > 1.5
