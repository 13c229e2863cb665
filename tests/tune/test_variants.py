"""Whole variants of a model: one decision of a pass at a time is taken otherwise and measured."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

import tilewright as tw
from tests.tune.test_records import record
from tilewright.graph import Builder, Module, PassContext
from tilewright.runtime import Measured
from tilewright.support.profile import Event, Profile
from tilewright.tune import best_records, in_turns, read_records, write_records
from tilewright.tune.in_turns import InTurns
from tilewright.tune.records.best import DECISIONS, decisions_of, option_of, schedulers_of
from tilewright.tune.report import page_of
from tilewright.tune.settings import Settings
from tilewright.tune.tasks import kernel_times
from tilewright.tune.variants import Varied, search_variants

INPUTS = {"x": np.random.default_rng(0).standard_normal((1, 32, 12, 12)).astype("f4")}


def network(name: str = "x", channels: int = 32) -> Module:
    rng = np.random.default_rng(0)
    b = Builder()
    x = b.input(name, "f32", (1, channels, 12, 12))
    weight = rng.standard_normal((channels, channels, 3, 3)).astype("f4")
    b.output(b.relu(b.conv(b.relu(x), weight, pads=[1] * 4)))
    return b.build()


def compiled(table: Mapping[str, Mapping[str, str]] | None = None) -> tw.Model:
    """The network, as if the form of its convolution were all that there is to decide."""
    with PassContext(decisions=table or {}):
        model = tw.compile(network())
    assert isinstance(model, tw.Model)
    model.decisions = tuple(d for d in model.decisions if d.made_by == "winograd")
    return model


def taken(model: tw.Model) -> str:
    (decision,) = (d for d in model.decisions if d.made_by == "winograd")
    return decision.taken


class Told:
    """Says how fast options of one decision are; runs nothing."""

    def __init__(self, ratios: Mapping[str, float], interrupt: bool = False) -> None:
        self.ratios, self.asked, self._interrupt = ratios, list[str](), interrupt

    def beside(self, model: Any, variant: Any, rounds: int, *, early: bool) -> Measured:
        if self._interrupt:
            raise KeyboardInterrupt
        del model, early
        self.asked.append(taken(variant))
        ratio = self.ratios.get(taken(variant), 1.0)
        if not ratio:
            return Measured(failure="wrong answer", reason="result 0 differs")
        return Measured((ratio,) * rounds, ratio * 1e-3, 1e-3)


def varied(path: Path, told: Told, budget: float = 100.0, **options: Any) -> Varied:
    settings = Settings(budget, path, **options)
    return search_variants(compiled(), compiled, cast("InTurns", told), settings)


@pytest.fixture(scope="module")
def others() -> list[str]:
    (decision,) = compiled().decisions
    return list(decision.others)


def test_the_fastest_option_wins_and_is_applied(tmp_path: Path, others: list[str]) -> None:
    path, told = tmp_path / "r.jsonl", Told({others[0]: 0.9, others[1]: 0.7})
    found = varied(path, told)
    assert taken(cast("tw.Model", found.model)) == others[1]
    (summary,) = (d for d in found.decisions if d.taken != d.default)
    assert summary.gain == pytest.approx(1 / 0.7) and summary.trials == len(others)
    records = read_records(path)
    assert {r.space for r in records} == {DECISIONS} and not schedulers_of(records)
    with tw.tune.apply_best(path):
        model = tw.compile(network("y"))
    assert isinstance(model, tw.Model) and taken(model) == others[1]
    ((best,),) = (list(b.values()) for b in best_records(records).values())
    assert option_of(best) == others[1] and best.wins and best.trace is None


def test_what_is_known_is_not_measured_again(tmp_path: Path, others: list[str]) -> None:
    path = tmp_path / "r.jsonl"
    varied(path, Told({others[0]: 0.8}))
    again = Told({})
    found = varied(path, again)
    assert not again.asked and taken(cast("tw.Model", found.model)) == others[0]
    assert [d.gain for d in found.decisions] == [pytest.approx(1.25)]
    older = [replace(r, versions={"sources": "older"}) for r in read_records(path)]
    write_records(older, path)
    varied(path, again)
    assert again.asked, "what other sources have measured is measured again"


def test_the_default_stays_where_nothing_is_faster_by_more_than_noise(
    tmp_path: Path, others: list[str]
) -> None:
    path, told = tmp_path / "r.jsonl", Told({others[0]: 0.985, others[1]: 0.0})
    found = varied(path, told)
    assert not found.table[compiled().target.machine] and not decisions_of(read_records(path))
    wrong = [r for r in read_records(path) if r.failure]
    assert [r.failure for r in wrong] == ["wrong answer"] and wrong[0].ratio is None


def test_interrupts_trials_and_the_clock_end_it(tmp_path: Path, others: list[str]) -> None:
    path = tmp_path / "r.jsonl"
    found = varied(path, Told({}, interrupt=True))
    assert found.interrupted and found.summary(Settings(1, path)).interrupted
    told = Told({})
    varied(path, told, trials=1)
    assert told.asked == others[:1]
    start = time.monotonic()
    varied(path, told, budget=1e-3)
    assert told.asked == others[:1] and time.monotonic() - start < 60


def test_kernels_that_differ_are_what_counts(others: list[str]) -> None:
    model, turns = compiled(), InTurns(INPUTS)
    same = turns.beside(model, compiled(), 3, early=False)
    assert same.failure is None and not same.wins(1.0)
    (decision,) = model.decisions
    variant = compiled({model.target.machine: {decision.key: others[0]}})
    found = turns.beside(model, variant, 3, early=False)
    assert found.failure is None and found.ratio > 0 and found.seconds > 0


def test_calls_are_summed_up_as_they_came() -> None:
    """The least of many short calls is that of a moment without interruption, which a long call
    never has: many short ones would seem to be faster than one long one on a busy machine."""

    class Busy:
        def profile(self, inputs: Any, *, runs: int, warmup: int) -> Profile:
            times = [(0, 10), (10, 20), (20, 70), (70, 80)]
            return Profile(runs, tuple(Event("short", "", a, b, 0, 0) for a, b in times))

    (found,) = kernel_times(cast("tw.Model", Busy()), {}, {"short": "key"}).items()
    assert found == ("key", (4, pytest.approx(80e-9)))


def test_variants_that_make_the_whole_slower_do_not_win(monkeypatch: pytest.MonkeyPatch) -> None:
    model, variant = compiled(), compiled()
    times = {id(model): {"same": (1, 1.0), "a": (1, 1.0)}, id(variant): {"same": (1, 2.0)}}
    times[id(variant)]["b"] = (1, 0.5)

    def told(there: Any, *_: Any) -> dict[str, tuple[int, float]]:
        return times[id(there)]

    monkeypatch.setattr(in_turns, "kernel_times", told)
    found = InTurns(INPUTS).beside(model, variant, 5, early=False)
    assert found.ratio == pytest.approx(1.25) and not found.wins(1.0)
    times[id(variant)]["same"] = (1, 1.0)
    found = InTurns(INPUTS).beside(model, variant, 5, early=False)
    assert found.ratio == pytest.approx(0.5) and found.wins(1.0)


def test_variants_with_other_answers_are_refused() -> None:
    rng = np.random.default_rng(1)
    b = Builder()
    x = b.input("x", "f32", (1, 32, 12, 12))
    b.output(b.conv(x, rng.standard_normal((32, 32, 3, 3)).astype("f4"), pads=[1] * 4))
    other = tw.compile(b.build())
    assert isinstance(other, tw.Model)
    found = InTurns(INPUTS).beside(compiled(), other, 3, early=False)
    assert found.failure == "wrong answer"


def test_a_model_is_tuned_with_its_variants(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    summary = tw.tune(network(), budget=60, records=path, trials=1, tuner="ga")
    spaces = [r.space for r in read_records(path)]
    assert summary.variants >= 1 and DECISIONS in spaces and "rules" in spaces
    assert f"{summary.variants} variants and" in summary.headline and summary.gain >= 1
    again = tw.tune(network(), budget=60, records=path, trials=1, tuner="ga", variants=False)
    assert not again.variants


def test_the_page_names_decisions() -> None:
    own = {"trace": None, "space": DECISIONS, "calls": 1, "ratio": 0.8}
    decision = record("d", name="winograd of a", values={"winograd": "direct"}, **own)
    page = page_of([record("a"), decision])
    assert "winograd of a" in page and "winograd = direct" in page
    assert "2 measurements of 1 kernels and 1 decisions" in page
