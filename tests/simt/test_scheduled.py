"""Definitions scheduled by hand for a GPU, lowered and executed, against NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.simt.gpu_passes import lowered
from tilewright import te
from tilewright.ir import Function, Stmt, function_text, is_barrier, map_function, seq, walk
from tilewright.simt import SimtError, run

RNG = np.random.default_rng(7)


def whole_numbers(*shape: int) -> np.ndarray:
    """Sums and products of which are exact in any order."""
    return RNG.integers(-4, 5, shape).astype(np.float32)


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


# ---- one phase ----------------------------------------------------------------------------------


def add(n: Any) -> tw.Schedule:
    a, b = te.placeholder((n,), name="A"), te.placeholder((n,), name="B")
    c = te.compute((n,), lambda i: a[i] + b[i], name="C")
    s = tw.Schedule(te.function([a, b], [c], name="add"))
    block, thread, lane = s.split(s.loops("C")[0], None, 64, 4)
    s.bind(block, "blockIdx.x")
    s.bind(thread, "threadIdx.x")
    s.vectorize(lane)
    return s


@pytest.mark.parametrize("n", [1, 255, 256, 1000])
@pytest.mark.parametrize("symbolic", [False, True])
def test_vectors_are_added(n: int, symbolic: bool) -> None:
    function = lowered(add(te.var("n") if symbolic else n).function)
    a, b, c = floats(n), floats(n), np.full(n, np.nan, np.float32)
    run(function, [a, b, c])
    np.testing.assert_array_equal(c, a + b)


def test_sizes_may_be_passed_with_flat_memory() -> None:
    m, n = te.var("m"), te.var("n")
    a = te.placeholder((m, n), name="A")
    b = te.compute((n, m), lambda i, j: a[j, i], name="B")
    s = tw.Schedule(te.function([a], [b], name="transpose"))
    i, j = s.loops("B")
    s.bind(i, "blockIdx.x")
    _, thread = s.split(j, None, 32)
    s.bind(thread, "threadIdx.x")
    x, y = floats(5, 70), np.zeros((70, 5), np.float32)
    run(lowered(s.function), [x.reshape(-1), y.reshape(-1), 5, 70])
    np.testing.assert_array_equal(y, x.T)


# ---- shared memory ------------------------------------------------------------------------------


def transpose(m: int, n: int, tile: int = 16) -> Function:
    """Rows are read, and rows are written; columns are read in shared memory."""
    a = te.placeholder((m, n), name="A")
    b = te.compute((n, m), lambda i, j: a[j, i], name="B")
    s = tw.Schedule(te.function([a], [b], name="transpose"))
    tiles = s.cache_read("B", "A", "shared")
    i, j = s.loops("B")
    i0, y = s.split(i, None, tile)
    j0, x = s.split(j, None, tile)
    s.reorder(i0, j0, y, x)
    s.bind(i0, "blockIdx.y")
    s.bind(j0, "blockIdx.x")
    rows, columns = s.compute_at(tiles, j0)
    for outer, inner in ((rows, columns), (y, x)):
        s.bind(outer, "threadIdx.y")
        s.bind(inner, "threadIdx.x")
    return lowered(s.function)


@pytest.mark.parametrize("shape", [(64, 64), (32, 48), (50, 37), (17, 100)])
def test_matrices_are_transposed_through_shared_memory(shape: tuple[int, int]) -> None:
    a, b = floats(*shape), np.zeros(shape[::-1], np.float32)
    run(transpose(*shape), [a, b])
    np.testing.assert_array_equal(b, a.T)


def test_without_barriers_it_would_race() -> None:
    function = transpose(64, 64)
    assert sum(map(is_barrier, walk(function.body))) == 1
    racing = map_function(function, lambda stmt: seq() if is_barrier(stmt) else None)
    with pytest.raises(SimtError, match="a race: it reads the element"):
        run(racing, [floats(64, 64), floats(64, 64)])


# ---- a product by tiles -------------------------------------------------------------------------


def product(m: Any, n: Any, k: Any, *, epilogue: bool = False) -> Function:
    a, b = te.placeholder((m, k), name="A"), te.placeholder((k, n), name="B")
    r = te.reduce_axis(k, name="k")
    c = te.compute((m, n), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")
    if not epilogue:
        return te.function([a, b], [c], name="product")
    d = te.compute((m, n), lambda i, j: te.max(c[i, j], 0.0), name="D")
    return te.function([a, b], [d], name="product")


def tiled(function: Function, *, threads: int = 8, each: int = 4, depth: int = 16) -> Function:
    """Tiles of both operands in shared memory, and of the result in registers."""
    s, tile = tw.Schedule(function), threads * each
    if len(s.blocks()) == 1:
        out: Any = s.cache_write("C", 0, "local")
    else:
        out = s.block("D")
        s.set_scope("C", 0, "local")
    copies = [s.cache_read("C", name, "shared") for name in "AB"]
    i, j = s.loops(out)
    bi, ti, ii = s.split(i, None, threads, each)
    bj, tj, jj = s.split(j, None, threads, each)
    s.reorder(bi, bj, ti, tj, ii, jj)
    s.bind(bi, "blockIdx.y")
    s.bind(bj, "blockIdx.x")
    s.bind(ti, "threadIdx.y")
    s.bind(tj, "threadIdx.x")
    s.vectorize(jj)
    x, y, r = s.compute_at("C", bj)
    ti, ii = s.split(x, threads, each)
    tj, jj = s.split(y, threads, each)
    ko, ki = s.split(r, None, depth)
    s.reorder(ko, ti, tj, ki, ii, jj)
    s.bind(ti, "threadIdx.y")
    s.bind(tj, "threadIdx.x")
    s.unroll(ii)
    s.unroll(jj)
    for copy in copies:
        _copy_together(s, copy, ko, threads)
    s.decompose_reduction("C", ko)
    s.transform_layout("C", 0, _by_threads(threads, each, tile))
    return lowered(s.function)


def _copy_together(s: tw.Schedule, copy: Any, loop: Any, threads: int) -> None:
    step, ty, tx, lane = s.split(s.fuse(*s.compute_at(copy, loop)), None, threads, threads, 4)
    s.reorder(ty, tx, step, lane)
    s.bind(ty, "threadIdx.y")
    s.bind(tx, "threadIdx.x")
    s.vectorize(lane)


def _by_threads(threads: int, each: int, tile: int) -> Callable[..., Any]:
    """First the thread that has an element, then which of its elements it is."""
    return lambda i, j: (
        i // each % threads,
        j // each % threads,
        i // tile,
        j // tile,
        i % each,
        j % each,
    )


def test_a_product_by_tiles() -> None:
    a, b, c = whole_numbers(64, 64), whole_numbers(64, 64), np.zeros((64, 64), np.float32)
    run(tiled(product(64, 64, 64)), [a, b, c])
    np.testing.assert_array_equal(c, a @ b)


@pytest.mark.parametrize("shape", [(50, 70, 33), (64, 32, 16), (33, 40, 20)])
@pytest.mark.parametrize("epilogue", [False, True])
def test_products_of_any_size(shape: tuple[int, int, int], epilogue: bool) -> None:
    m, n, k = shape
    a, b, c = whole_numbers(m, k), whole_numbers(k, n), np.zeros((m, n), np.float32)
    run(tiled(product(m, n, k, epilogue=epilogue)), [a, b, c])
    np.testing.assert_array_equal(c, np.maximum(a @ b, 0) if epilogue else a @ b)


def test_a_product_of_sizes_that_are_not_known() -> None:
    function = tiled(product(te.var("m"), te.var("n"), te.var("k")))
    for m, n, k in [(64, 64, 64), (50, 70, 33), (1, 1, 1)]:
        a, b, c = whole_numbers(m, k), whole_numbers(k, n), np.zeros((m, n), np.float32)
        run(function, [a, b, c])
        np.testing.assert_array_equal(c, a @ b)


def test_a_product_as_text(golden: Any) -> None:
    golden(function_text(tiled(product(64, 64, 64), each=2)), "simt/product")


# ---- sums over a row by all threads of a block --------------------------------------------------


def softmax(rows: Any, columns: int) -> Function:
    x = te.placeholder((rows, columns), name="X")
    r, q = te.reduce_axis(columns, name="r"), te.reduce_axis(columns, name="q")
    most = te.compute((rows,), lambda i: te.max(x[i, r], axis=r), name="M")
    e = te.compute((rows, columns), lambda i, j: te.exp(x[i, j] - most[i]), name="E")
    total = te.compute((rows,), lambda i: te.sum(e[i, q], axis=q), name="S")
    y = te.compute((rows, columns), lambda i, j: e[i, j] / total[i], name="Y")
    return te.function([x], [y], name="softmax")


def halved(s: tw.Schedule, name: str, threads: int) -> list[Any]:
    """A reduction as one by each thread, then by half as many, and so on; gives these stages."""
    stages: list[Any] = []
    while threads > 1:
        _, own = s.split(s.loops(name)[-1], None, threads)
        stages.append(s.rfactor(own, 0))
        threads //= 2
    return stages


def by_rows(function: Function, threads: int) -> Function:
    """One block of threads for every row."""
    s = tw.Schedule(function)
    stages = {name: halved(s, name, threads) for name in "MS"}
    row, column = s.loops("Y")
    _spread(s, column, threads)
    s.bind(row, "blockIdx.x")
    for name in "SM":
        s.compute_at(name, row)
        s.set_scope(name, 0, "shared")
        for stage in reversed(stages[name]):
            step, thread = s.compute_at(stage, row)
            s.reorder(thread, step)
            s.bind(thread, "threadIdx.x")
            s.set_scope(stage, 0, "shared")
        if name == "S":
            _spread(s, s.compute_at("E", row)[0], threads)
            s.set_scope("E", 0, "shared")
    return lowered(s.function)


def _spread(s: tw.Schedule, loop: Any, threads: int) -> None:
    outer, inner = s.split(loop, None, threads)
    s.reorder(inner, outer)
    s.bind(inner, "threadIdx.x")


@pytest.mark.parametrize("symbolic", [False, True])
def test_softmax_with_sums_by_halves(symbolic: bool) -> None:
    function = by_rows(softmax(te.var("rows") if symbolic else 256, 512), 128)
    x, y = floats(256, 512), np.zeros((256, 512), np.float32)
    run(function, [x, y])
    powers = np.exp(x.astype(np.float64) - x.max(axis=1, keepdims=True))
    np.testing.assert_allclose(y, powers / powers.sum(axis=1, keepdims=True), rtol=1e-5)


def test_sums_by_halves_wait_between_all_steps() -> None:
    function = by_rows(softmax(8, 64), 16)
    x, y = floats(8, 64), np.zeros((8, 64), np.float32)
    run(function, [x, y])
    barriers = [s for s in walk(function.body) if is_barrier(s)]
    needed = [_races_without(function, barrier, [x, y]) for barrier in barriers]
    # Each thread first sums powers that it has computed itself, which is not looked at.
    assert len(barriers) > 10
    assert needed.count(False) == 1


def _races_without(function: Function, barrier: Stmt, arguments: list[np.ndarray]) -> bool:
    try:
        run(map_function(function, lambda s: seq() if s is barrier else None), arguments)
    except SimtError as error:
        return "a race" in error.reason
    return False


# ---- several launches ---------------------------------------------------------------------------


def test_launches_hand_on_what_lies_in_global_memory() -> None:
    n = te.var("n")
    x = te.placeholder((n,), name="X")
    squares = te.compute((n,), lambda i: x[i] * x[i], name="squares")
    y = te.compute((n,), lambda i: squares[n - 1 - i] + 1.0, name="Y")
    s = tw.Schedule(te.function([x], [y], name="two"))
    for name in ("squares", "Y"):
        block, thread = s.split(s.loops(name)[0], None, 32)
        s.bind(block, "blockIdx.x")
        s.bind(thread, "threadIdx.x")
    function = lowered(s.function)
    for size in (1, 100):
        a, b = floats(size), np.zeros(size, np.float32)
        run(function, [a, b])
        np.testing.assert_array_equal(b, (a * a)[::-1] + np.float32(1))
