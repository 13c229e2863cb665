"""Templates: schedules with choices that people write."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
from tilewright import te
from tilewright.schedule import Schedule
from tilewright.tune import Knobs, read_records
from tilewright.tune.records.best import schedulers_of
from tilewright.tune.spaces.space import Sample

M, N, K = 40, 64, 24


def matmul(m: int = M) -> tw.Function:
    a, b = te.placeholder((m, K), name="A"), te.placeholder((K, N), name="B")
    k = te.reduce_axis(K, name="k")
    c = te.compute((m, N), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    return te.function([a, b], [c], name="matmul")


@tw.tune.template
def tiled(s: Schedule, space: Knobs) -> None:
    i, j, k = s.loops("C")
    io, ii = space.split("rows", i)
    jo, ji = space.split("columns", j, factors=(8, 16, 32))
    space.reorder("order", [(io, jo, k, ii, ji), (jo, io, ii, k, ji)])
    space.annotate("inner", ji)
    if space.choice("parallel", (False, True)):
        s.parallel(s.loops("C")[0])


def test_the_first_candidates_are_the_default() -> None:
    text = str(tiled.default(matmul()))
    assert "vectorized" in text or "vectorize" in text
    space = tiled.space(matmul())
    assert {n: len(c) for n, c in space.knobs.items()} == {
        "rows": 6,
        "columns": 3,
        "order": 2,
        "inner": 3,
        "parallel": 2,
    }
    assert space.knobs["rows"][0] == (8,)


def test_splits_in_several_parts() -> None:
    @tw.tune.template
    def deep(s: Schedule, space: Knobs) -> None:
        space.split("rows", s.loops("C")[0], 3)

    space = deep.space(matmul())
    assert all(a * b <= M for a, b in space.knobs["rows"])  # type: ignore[misc]
    assert len(space.default.schedule.loops("C")) == 5


def test_every_sample_computes_the_same() -> None:
    space = tiled.space(matmul())
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(s).astype(np.float32) for s in ((M, K), (K, N)))
    for k in range(4):
        point = space.point(Sample.of({"rows": k, "columns": k, "order": k, "inner": k}))
        assert point is not None
        c = np.empty((M, N), np.float32)
        tw.build(point.schedule)(a, b, c)
        np.testing.assert_allclose(c, a @ b, rtol=1e-4, atol=1e-4)


def test_a_template_is_tuned_and_its_best_is_built(tmp_path: Path) -> None:
    @tw.tune.template
    def slow_at_first(s: Schedule, space: Knobs) -> None:
        i, j, k = s.loops("C")
        space.reorder("order", [(k, j, i), (i, k, j)])
        space.annotate("inner", s.loops("C")[-1], ("none", "vectorize"))

    path = tmp_path / "r.jsonl"
    summary = slow_at_first.tune(matmul(), budget=60, records=path, tuner="grid")
    assert summary.trials == 2 or summary.trials == 3
    assert summary.gain > 1, "rows in vectors are faster than columns one by one"
    best = slow_at_first.best(matmul(), path)
    assert str(best) != str(slow_at_first.default(matmul()))
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(s).astype(np.float32) for s in ((M, K), (K, N)))
    c = np.empty((M, N), np.float32)
    tw.build(best)(a, b, c)
    np.testing.assert_allclose(c, a @ b, rtol=1e-4, atol=1e-4)
    assert str(slow_at_first.best(matmul(M + 1), path)) == str(slow_at_first.default(matmul(M + 1)))
    assert not schedulers_of(read_records(path)), "models have nothing of it"


def test_sizes_must_be_known(tmp_path: Path) -> None:
    n = te.var("n")
    x = te.placeholder((n,), name="x")
    f = te.function([x], [te.compute((n,), lambda i: x[i] * 2.0, name="y")], name="twice")

    @tw.tune.template
    def split(s: Schedule, space: Knobs) -> None:
        _, inner = space.split("by", s.loops("y")[0])
        space.annotate("inner", inner)

    with pytest.raises(tw.UserError, match="nothing says how large n is"):
        split.tune(f, records=tmp_path / "r.jsonl")
    summary = split.tune(f, sizes={"n": 1000}, trials=2, records=tmp_path / "r.jsonl", tuner="ga")
    assert summary.trials == 2 and not summary.failures
