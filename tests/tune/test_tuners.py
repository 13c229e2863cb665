"""Tuners on spaces whose costs are known."""

from __future__ import annotations

import sys
from itertools import islice
from random import Random
from statistics import mean
from typing import Any

import pytest

import tilewright as tw
from tilewright import te
from tilewright.ir import Ramp, child_exprs, loads_in, walk
from tilewright.kernels.pipeline import scheduled
from tilewright.schedule import Choices, Schedule
from tilewright.tune.features import features_of
from tilewright.tune.spaces.space import Point, Sample, Space
from tilewright.tune.transfer import matching
from tilewright.tune.tuners import table
from tilewright.tune.tuners.grid import GridTuner
from tilewright.tune.tuners.tuner import FAILED, Example, TaskHistory, near_default, random_sample

SIZES = (2, 3, 4, 6, 8, 12, 16, 24, 32, 64)


def matmul(size: int = 256) -> tw.Function:
    a, b = (te.placeholder((size, size), name=n) for n in "ab")
    k = te.reduce_axis(size, name="k")
    c = te.compute((size, size), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="c")
    return te.function([a, b], [c], name="matmul")


def tiled(s: Schedule, choices: Choices) -> None:
    """Three tiles in two orders, with the inner loop vectorized or not."""
    i, j, k = s.loops("c")
    tiles = [choices.choose(n, SIZES) for n in ("rows", "columns", "depth")]
    (io, ii), (jo, ji), (ko, ki) = (
        s.split(loop, t) for loop, t in zip((i, j, k), tiles, strict=True)
    )
    inner = {"kij": (ki, ii, ji), "ikj": (ii, ki, ji), "ijk": (ii, ji, ki)}
    s.reorder(io, jo, ko, *inner[choices.choose("order", list(inner))])
    if choices.choose("unroll", (False, True)):
        s.unroll(ii)


def marked(s: Schedule, choices: Choices) -> None:
    """Choices that change nothing but annotations: quick to look at, and many."""
    for name in "abcdef":
        s.annotate(s.block("c"), name, choices.choose(name, range(10)))


def cost(point: Point, best: dict[str, int]) -> float:
    """A bowl around the best sample, in steps of each choice."""
    own = point.sample.positions
    return 0.5 + sum(0.05 * abs(own.get(n, 0) - k) for n, k in best.items())


PROGRAMS: dict[str, tuple[Any, dict[str, int]]] = {
    "tiled": (tiled, {"rows": 5, "columns": 6, "depth": 3, "order": 1, "unroll": 1}),
    "marked": (marked, dict(zip("abcdef", (5, 1, 4, 0, 3, 6), strict=True))),
}


def search(tuner: str, program: str, trials: int, seed: int) -> float:
    """The least cost that a tuner finds in so many trials, in batches of eight."""
    made_by, best = PROGRAMS[program]
    space, known, rng = Space(matmul(), made_by), TaskHistory(), Random(seed)
    examples: list[Example] = []
    known.examples = examples
    made = table.TUNERS[tuner]()
    while len(known.ratios) < trials:
        batch: list[Point] = []
        for sample in islice(made.samples(space, known, rng), 200):
            point = space.point(sample)
            if point and point.sample not in known.ratios and point not in batch:
                batch.append(point)
            if len(batch) == 8:
                break
        for point in batch:
            known.ratios[point.sample] = cost(point, best)
            examples.append(Example("t", point.features, cost(point, best)))
    return min(known.ratios.values())


@pytest.mark.parametrize(
    ("tuner", "program", "trials", "seeds"),
    [
        ("ga", "marked", 56, 4),
        ("annealing", "marked", 56, 4),
        ("gbt", "marked", 48, 2),
        ("gbt", "tiled", 40, 2),
    ],
)
def test_guided_search_beats_random(tuner: str, program: str, trials: int, seeds: int) -> None:
    if tuner == "gbt":
        pytest.importorskip("lightgbm")
    guided, by_chance = (
        mean(search(name, program, trials, seed) for seed in range(seeds))
        for name in (tuner, "random")
    )
    assert guided < by_chance


def test_what_is_known_of_other_tasks_comes_first() -> None:
    """Trees rank beginnings by loops where nothing of the task itself is measured."""
    pytest.importorskip("lightgbm")
    space, rng = Space(matmul(), tiled), Random(0)
    best = PROGRAMS["tiled"][1]
    samples = [random_sample(space, rng) for _ in range(24)]
    others = [p for p in map(space.point, samples) if p is not None]
    examples = [Example("other", p.features, cost(p, best)) for p in others]
    found = islice(table.TUNERS["gbt"]().samples(space, TaskHistory({}, examples), rng), 24)
    costs = [cost(p, best) for p in map(space.point, found) if p is not None]
    assert mean(costs[:8]) < mean(costs)


def test_grid_takes_every_sample_once_and_the_nearest_first() -> None:
    space = Space(matmul(), tiled)
    found = list(GridTuner().samples(space, TaskHistory(), Random(0)))
    assert len(found) == len(set(found)) == space.size == 10**3 * 3 * 2
    assert found[0] == Sample()
    sums = [sum(s.positions.values()) for s in found]
    assert sums == sorted(sums)


@pytest.mark.parametrize("tuner", list(table.TUNERS))
def test_the_same_seed_gives_the_same_samples(tuner: str) -> None:
    if tuner == "gbt":
        pytest.importorskip("lightgbm")
    made = table.TUNERS[tuner]()
    first, again = (
        list(islice(made.samples(Space(matmul(), tiled), TaskHistory(), Random(7)), 20))
        for _ in "ab"
    )
    assert first == again


@pytest.mark.parametrize("tuner", list(table.TUNERS))
def test_spaces_with_nothing_to_choose(tuner: str) -> None:
    if tuner == "gbt":
        pytest.importorskip("lightgbm")
    space = Space(matmul(), lambda s, choices: None)
    found = islice(table.TUNERS[tuner]().samples(space, TaskHistory(), Random(0)), 5)
    assert set(found) <= {Sample()}


def test_failures_are_no_parents() -> None:
    good, bad = Sample.of({"rows": 1}), Sample.of({"rows": 2})
    known = TaskHistory({bad: FAILED, good: 1.2})
    assert known.ranked() == [(good, 1.2)]


def test_beginnings_are_near_the_default() -> None:
    found = list(near_default(Space(matmul(), tiled)))
    assert found.pop(0) == Sample()
    assert all(len(s.taken) == 1 for s in found) and len(found) == 3 * 9 + 2 + 1
    assert [s.taken[0][1] for s in found[:5]] == [1, 1, 1, 1, 1]


def test_choices_are_found_by_what_they_stand_for() -> None:
    space = Space(matmul(), tiled)
    wanted = {"rows": "6", "order": "ijk", "depth": "7", "other": "1"}
    assert matching(space, wanted) == Sample.of({"rows": 3, "order": 2})


def test_tuners_that_are_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(tw.UserError, match="there is no tuner 'luck'"):
        table.tuner_of("luck")
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    with pytest.raises(tw.UserError, match=r"gbt needs LightGBM.*\n.*install tilewright\[tune\]"):
        table.tuner_of("gbt")
    with pytest.warns(UserWarning, match="searching with ga"):
        assert isinstance(table.tuner_of(None), table.GeneticTuner)


# ---- spaces -------------------------------------------------------------------------------------


def dependent(s: Schedule, choices: Choices) -> None:
    """What there is to choose depends on what was chosen."""
    i, j, _ = s.loops("c")
    if choices.choose("how", ("plain", "tiled")) == "tiled":
        s.split(i, choices.choose("factor", (4, 8, 16)))
    elif choices.choose("parallel", (False, True)):
        s.parallel(i)
    if choices.choose("illegal", (False, True)):
        s.vectorize(i)
        s.vectorize(j)


def test_choices_are_found_on_the_way() -> None:
    space = Space(matmul(), dependent)
    assert set(space.knobs) == {"how", "parallel", "illegal"}
    point = space.point(Sample.of({"how": 1, "factor": 4, "parallel": 1}))
    assert point is not None
    assert point.sample == Sample.of({"how": 1, "factor": 1}), "wrapped around, and not asked"
    assert set(space.knobs) == {"how", "parallel", "illegal", "factor"}


def test_illegal_samples_are_none() -> None:
    assert Space(matmul(), dependent).point(Sample.of({"illegal": 1})) is None


def test_a_space_whose_own_choices_are_illegal() -> None:
    def never(s: Schedule, choices: Choices) -> None:
        s.split("nowhere", 2)

    with pytest.raises(tw.UserError, match="the space of matmul is empty"):
        Space(matmul(), never)


def test_points_replay() -> None:
    space, rng = Space(matmul(), tiled), Random(1)
    for _ in range(5):
        sample = Sample.of({n: rng.randrange(len(c)) for n, c in space.knobs.items()})
        point = space.point(sample)
        assert point is not None
        assert str(point.trace.replay(matmul()).function) == point.text


def test_features_tell_schedules_apart() -> None:
    space = Space(matmul(), tiled)
    samples: list[dict[str, int]] = [{}, {"rows": 1}, {"order": 1}, {"unroll": 1}]
    points = [space.point(Sample.of(s)) for s in samples]
    rows = [features_of(p.function) for p in points if p is not None]
    assert len(set(rows)) == 4 and len({len(r) for r in rows}) == 1


def test_features_of_tensor_instructions() -> None:
    """Their blocks hold vectors."""
    k = te.reduce_axis(64, name="k")
    a, b = (te.placeholder((64, 64), "int8", name=n) for n in "ab")

    def element(i: Any, j: Any) -> Any:
        return te.sum(te.cast(a[i, k], "int32") * te.cast(b[j, k], "int32"), axis=k)

    f = te.function([a, b], [te.compute((64, 64), element, name="c")], name="product")
    for cpu in ("cortex-m4", "cortex-m55", "neoverse-n1"):
        made = scheduled(f, tw.Target.of(f"llvm -mcpu={cpu}"))
        assert any(isinstance(i, Ramp) for s in walk(made.body) for i in _indices(s)), cpu
        assert len(features_of(made)) == len(features_of(f))


def _indices(stmt: Any) -> list[Any]:
    loads = [e for value in child_exprs(stmt) for e in loads_in(value)]
    return [i for load in loads for i in load.indices]
