"""Definitions scheduled by hand for a GPU, lowered and executed, against NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.simt.gpu_passes import lowered
from tilewright import te
from tilewright.ir import Function, function_text, is_barrier, map_function, seq, walk
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
