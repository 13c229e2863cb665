"""Sketches: schedules of plain loops by a program that knows no operator."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright import te
from tilewright.graph import Builder
from tilewright.tune import best_records, read_records
from tilewright.tune.spaces.sketches import sketch_space, sketches
from tilewright.tune.spaces.space import Sample
from tilewright.tune.tuners.tuner import random_sample

HOST = tw.Target.of("llvm")
Arrays = list[np.ndarray[Any, Any]]


def matmul(m: Any = 30, n: int = 50, k: int = 17, relu: bool = False) -> tw.Function:
    a, b = te.placeholder((m, k), name="a"), te.placeholder((k, n), name="b")
    r = te.reduce_axis(k, name="r")
    c = te.compute((m, n), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="c")
    zero = te.const(0.0, "float32")
    d = te.compute((m, n), lambda i, j: te.maximum(c[i, j], zero), name="d")
    return te.function([a, b], [d if relu else c], name="matmul")


def conv() -> tw.Function:
    x, w = te.placeholder((1, 3, 12, 21), name="x"), te.placeholder((5, 3, 3, 3), name="w")
    c, p, q = (te.reduce_axis(3, name=n) for n in "cpq")
    y = te.compute(
        (1, 5, 10, 19),
        lambda n, f, i, j: te.sum(x[n, c, i + p, j + q] * w[f, c, p, q], axis=[c, p, q]),
        name="y",
    )
    return te.function([x, w], [y], name="conv")


def depthwise() -> tw.Function:
    x, w = te.placeholder((5, 12, 21), name="x"), te.placeholder((5, 3, 3), name="w")
    p, q = (te.reduce_axis(3, name=n) for n in "pq")
    y = te.compute(
        (5, 10, 19),
        lambda f, i, j: te.sum(x[f, i + p, j + q] * w[f, p, q], axis=[p, q]),
        name="y",
    )
    return te.function([x, w], [y], name="depthwise")


def softmax(columns: int = 201) -> tw.Function:
    x = te.placeholder((7, columns), name="x")
    k, l = (te.reduce_axis(columns, name=n) for n in "kl")  # noqa: E741
    m = te.compute((7,), lambda i: te.max(x[i, k], axis=k), name="m")
    e = te.compute((7, columns), lambda i, j: te.exp(x[i, j] - m[i]), name="e")
    total = te.compute((7,), lambda i: te.sum(e[i, l], axis=l), name="total")
    y = te.compute((7, columns), lambda i, j: e[i, j] / total[i], name="y")
    return te.function([x], [y], name="softmax")


def normalized(groups: int = 3, columns: int = 45) -> tw.Function:
    """Each group less its mean, in units of its deviation, times weights."""
    shape = (2, groups, columns)
    x, w = te.placeholder(shape, name="x"), te.placeholder((columns,), name="w")
    k, l = (te.reduce_axis(columns, name=n) for n in "kl")  # noqa: E741
    m = te.compute(shape[:2], lambda i, g: te.sum(x[i, g, k], axis=k), name="m")
    d = te.compute(shape, lambda i, g, j: x[i, g, j] - m[i, g] / float(columns), name="d")
    v = te.compute(shape[:2], lambda i, g: te.sum(d[i, g, l] * d[i, g, l], axis=l), name="v")
    y = te.compute(
        shape,
        lambda i, g, j: d[i, g, j] / te.sqrt(v[i, g] / float(columns)) * w[j],
        name="y",
    )
    return te.function([x, w], [y], name="normalized")


def total() -> tw.Function:
    x, k = te.placeholder((1000,), name="x"), te.reduce_axis(1000, name="k")
    return te.function([x], [te.compute((1,), lambda i: te.sum(x[k + i], axis=k), name="t")])


def one() -> tw.Function:
    x = te.placeholder((1,), name="x")
    return te.function([x], [te.compute((1,), lambda i: x[i] + 1.0, name="y")], name="one")


def product(a: Any, b: Any) -> Any:
    return a @ b


def windows(x: Any, w: Any) -> Any:
    cut = np.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(2, 3))
    return np.einsum("ncijpq,fcpq->nfij", cut, w)


def windows_apart(x: Any, w: Any) -> Any:
    cut = np.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(1, 2))
    return np.einsum("fijpq,fpq->fij", cut, w)


def probabilities(x: Any) -> Any:
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def deviations(x: Any, w: Any) -> Any:
    return (x - x.mean(-1, keepdims=True)) / x.std(-1, keepdims=True) * w


CASES: dict[str, tuple[tw.Function, Any]] = {
    "matmul": (matmul(), product),
    "relu": (matmul(relu=True), lambda a, b: np.maximum(a @ b, 0)),
    "one row": (matmul(1, 64, 8), product),
    "one column": (matmul(8, 1, 40), product),
    "conv": (conv(), windows),
    "depthwise": (depthwise(), windows_apart),
    "softmax": (softmax(), probabilities),
    "short rows": (softmax(3), probabilities),
    "normalized": (normalized(), deviations),
    "total": (total(), lambda x: x.sum(keepdims=True)),
    "one": (one(), lambda x: x + 1),
}


@pytest.mark.parametrize("name", list(CASES))
def test_samples_are_right(name: str) -> None:
    function, reference = CASES[name]
    space, rng = sketch_space(function, HOST), np.random.default_rng(0)
    shapes = [[int(d.value) for d in p.shape] for p in function.buffers]  # type: ignore[union-attr]
    arrays: Arrays = [rng.standard_normal(s).astype(np.float32) for s in shapes]
    expected, chance = reference(*arrays[:-1]), Random(1)
    points = [space.default, *(space.point(random_sample(space, chance)) for _ in range(3))]
    for point in filter(None, points):
        arrays[-1][...] = np.nan
        tw.build(point.schedule)(*arrays)
        np.testing.assert_allclose(arrays[-1], expected, rtol=1e-3, atol=1e-4, err_msg=str(point))


def offered(function: tw.Function, name: str, target: tw.Target = HOST) -> tuple[str, ...]:
    """The candidates of a choice, in words."""
    knobs = sketch_space(function, target).knobs
    return tuple(str(c) for n, found in knobs.items() if n.endswith(f".{name}") for c in found)


def test_a_third_dimension_is_tiled_where_that_reads_less() -> None:
    assert offered(conv(), "third") and not offered(depthwise(), "third")
    assert not offered(matmul(), "third")
    space = sketch_space(conv(), HOST)
    point = space.point(Sample.of({"sketch(y).third": 1, "sketch(y).whole_sums": 2}))
    assert point is not None and "f_1 in unrolled(4)" in point.text
    assert "p in unrolled(3)" in point.text and "q in unrolled(3)" in point.text


def test_tiles_that_no_registers_hold_are_refused_before_any_code() -> None:
    space = sketch_space(conv(), tw.Target.of("llvm -mcpu=znver3"))
    large = {"sketch(y).rows": 7, "sketch(y).vectors": 3, "sketch(y).third": 3}
    assert [int(space.knobs[n][k]) for n, k in large.items()] == [16, 4, 8]  # type: ignore[call-overload]
    assert space.point(Sample.of(large)) is None


def test_vectors_may_go_evenly_into_columns() -> None:
    target = tw.Target.of("llvm -mcpu=znver3")
    assert offered(matmul(8, 28, 8), "lanes", target) == ("8", "28", "14", "7", "4", "16")
    assert offered(matmul(8, 64, 8), "lanes", target) == ("8", "4", "16")
    assert offered(matmul(8, 5, 8), "lanes", target) == (), "one vector is all of them"


@pytest.mark.parametrize("cpu", ["skylake-avx512", "neoverse-n1", "znver3"])
@pytest.mark.parametrize("function", [softmax(), normalized()], ids=["softmax", "normalized"])
def test_chains_are_computed_row_by_row(function: tw.Function, cpu: str) -> None:
    """Also where rows are shorter than the vectors that are taken of long ones."""
    space = sketch_space(function, tw.Target.of(f"llvm -mcpu={cpu} -num-cores=2"))
    outer = [line for line in space.default.text.splitlines() if line.startswith("    for ")]
    assert len(outer) == 1, "all of it is in one nest of loops"
    assert "vectorized" in space.default.text and "_rf" in space.default.text
    apart = space.point(Sample.of({"sketch(y).by_rows": 1}))
    assert apart is not None and apart.text != space.default.text


@pytest.mark.parametrize("cpu", ["skylake-avx512", "neoverse-n1", "znver3"])
def test_tiles_are_vectors_of_the_target(cpu: str) -> None:
    target = tw.Target.of(f"llvm -mcpu={cpu} -num-cores=4")
    text = str(sketch_space(matmul(64, 64, 64), target).default.schedule)
    assert "parallel" in text and "vectorize" in text and "unroll" in text
    assert f"{target.lanes('float32')}" in text
    tw.build(sketch_space(matmul(64, 64, 64), target).default.schedule, target)


def test_sizes_may_be_unknown() -> None:
    function = matmul(te.var("n"))
    a, b, c = np.ones((5, 17), "f4"), np.ones((17, 50), "f4"), np.empty((5, 50), "f4")
    tw.build(sketch_space(function, HOST).default.schedule)(a, b, c)
    assert (c == 17).all()


def test_there_are_none_for_gpus() -> None:
    with pytest.raises(tw.UserError, match="there are no sketches for cuda"):
        sketches(tw.Target.of("cuda -arch=sm_90a"))


def test_a_function_is_tuned_by_sketches(tmp_path: Path) -> None:
    found, path = tw.tune.automatic(), tmp_path / "r.jsonl"
    summary = found.tune(matmul(), budget=60, trials=3, tuner="ga", records=path)
    assert summary.trials == 3 and not summary.failures
    a, b, c = np.ones((30, 17), "f4"), np.ones((17, 50), "f4"), np.empty((30, 50), "f4")
    tw.build(found.best(matmul(), path))(a, b, c)
    assert (c == 17).all()


def test_a_model_is_tuned_by_sketches(tmp_path: Path) -> None:
    b = Builder()
    x = b.input("x", "f32", (24, 40))
    b.output(b.matmul(x, np.ones((40, 48), np.float32)))
    graph, path = b.build(), tmp_path / "r.jsonl"
    summary = tw.tune(graph, space="sketches", budget=60, trials=3, tuner="ga", records=path)
    assert summary.trials == 3 and not summary.failures
    assert {r.space for r in read_records(path)} == {"sketches"}
    with tw.tune.apply_best(path):
        model = tw.compile(graph)
    assert (model(np.ones((24, 40), np.float32)) == 40).all()
    best_records(read_records(path))
    with pytest.raises(tw.UserError, match="there is no space 'luck'"):
        tw.tune(graph, space="luck", records=path)
