"""Reductions on GPUs: rows by blocks of threads, long sums by parts, results by threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.schedule.gpu.launches import TARGET, launches_of, loops, run, scheduled, threads_of
from tilewright import te
from tilewright.ir import Alloc, Function, is_const, walk
from tilewright.kernels.pipeline import lowered
from tilewright.schedule import Schedule
from tilewright.schedule.rules.gpu import results
from tilewright.schedule.rules.gpu.grid import extent_of_loop

Array = np.ndarray[Any, Any]


def check(function: Function, inputs: list[Array], want: Array, rtol: float = 2e-5) -> Schedule:
    s = scheduled(function)
    dims = {d: int(d.name.removeprefix("n")) for d in function.dims}  # as `loops` names them
    (got,) = run(s.function, inputs, [(want.shape, want.dtype)], dims)
    np.testing.assert_allclose(got, want, rtol, 1e-5)
    return s


def numbers(*shape: int) -> Array:
    return np.random.default_rng(len(shape)).random(shape, np.float32) - np.float32(0.25)


def softmax(x: Array) -> Array:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def scopes(s: Schedule) -> dict[str, str]:
    allocs = [a for a in walk(s.function.body) if isinstance(a, Alloc)]
    return {b.name: b.scope for a in allocs for b in a.buffers}


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize(
    ("shape", "threads"),
    [
        ((6, 1024), {"threadIdx.x": 256}),
        ((3, 5, 1000), {"threadIdx.x": 256}),
        ((24, 100), {"threadIdx.x": 32, "threadIdx.y": 8}),
        ((7, 20), {"threadIdx.x": 32}),
        ((300,), {"threadIdx.x": 128}),
    ],
)
def test_a_softmax_is_one_launch(
    shape: tuple[int, ...], threads: dict[str, int], symbolic: bool
) -> None:
    x = numbers(*shape)
    s = check(loops("softmax", x, symbolic=symbolic, axis=-1), [x], softmax(x))
    launches = launches_of(s.function)
    if symbolic:
        assert len(launches) == 1 or len(shape) == 1
    else:
        (launch,) = launches
        assert threads_of(launch) == threads
        assert "global" not in scopes(s).values(), "what lies between stays on the chip"


@pytest.mark.parametrize(("length", "scope"), [(8192, "shared"), (16000, "global")])
def test_rows_that_do_not_fit_into_shared_memory_stay_in_memory(length: int, scope: str) -> None:
    x = numbers(80, length)
    s = check(loops("softmax", x, axis=-1), [x], softmax(x))
    assert len(launches_of(s.function)) == 1
    assert scopes(s)["softmax_exp"] == scope and scopes(s)["softmax_sum"] == "shared"


def test_norms_are_one_launch() -> None:
    x, scale, shift = numbers(12, 384), numbers(384), numbers(384)
    mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    want = (x - mean) / np.sqrt(variance + 1e-5) * scale + shift
    function = loops("layer_norm", x, scale, shift, axis=-1, epsilon=1e-5)
    s = check(function, [x, scale, shift], want.astype("float32"), 1e-4)
    assert len(launches_of(s.function)) == 1


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("name", ["sum", "max", "mean", "l2"])
def test_rows_are_reduced_by_threads(name: str, symbolic: bool) -> None:
    x = numbers(40, 700)
    want: dict[str, Callable[[], Array]] = {
        "sum": lambda: x.sum(1),
        "max": lambda: x.max(1),
        "mean": lambda: x.mean(1),
        "l2": lambda: np.sqrt((x * x).sum(1)),
    }
    function = loops(name, x, symbolic=symbolic, axes=[1], keepdims=False)
    s = check(function, [x], want[name]())
    assert len(launches_of(s.function)) == 1


def test_empty_sums_are_what_they_start_with() -> None:
    x = numbers(40, 700)
    s = scheduled(loops("sum", x, symbolic=True, axes=[1], keepdims=False))
    (got,) = run(s.function, [np.zeros((3, 0), np.float32)], [((3,), "float32")])
    assert got.tolist() == [0, 0, 0]


@pytest.mark.parametrize("shape", [(300_000,), (3, 400, 400), (100, 3001)])
def test_long_sums_are_cut_into_parts(shape: tuple[int, ...]) -> None:
    x = numbers(*shape)
    axes = list(range(len(shape)))
    function = loops("sum", x, axes=axes, keepdims=False)
    s = check(function, [x], np.asarray(x.sum(dtype="float64"), "float32"), 1e-4)
    first, second = launches_of(s.function)
    assert int(first.extent.value) > 30  # type: ignore[attr-defined]
    assert int(second.extent.value) == 1  # type: ignore[attr-defined]


def test_one_sum_of_elements_that_are_no_neighbours() -> None:
    """It has no dimension along which there could be vectors."""
    x = numbers(300, 3)
    a, k = te.placeholder(x.shape, name="A"), te.reduce_axis(300, "k")
    out = te.compute((), lambda: te.sum(a[k, 1], [k]), name="B")
    check(te.function([a], [out], name="f"), [x], np.asarray(x[:, 1].sum()), 1e-4)


def test_columns_are_summed_by_neighbouring_threads() -> None:
    x = numbers(20, 5000)
    s = check(loops("sum", x, axes=[0], keepdims=False), [x], x.sum(0))
    (launch,) = launches_of(s.function)
    assert threads_of(launch) == {"threadIdx.x": 256}
    assert "local" in scopes(s).values(), "sums are kept in registers"


def test_few_long_columns_are_cut_into_parts() -> None:
    x = numbers(3000, 50)
    s = check(loops("sum", x, axes=[0], keepdims=False), [x], x.sum(0), 1e-4)
    assert len(launches_of(s.function)) == 2


@pytest.mark.parametrize(
    ("shape", "blocks"),
    [
        ((300, 4096), 128),
        ((257, 500), 125),
        ((1001, 999), 111),
        ((4, 150, 64), 32),
        ((16, 200, 960), 640),
        ((32, 200, 240), 384),
    ],
)
@pytest.mark.parametrize("name", ["sum", "max"])
def test_threads_share_columns(name: str, shape: tuple[int, ...], blocks: int) -> None:
    """By vectors where columns are whole ones; the last sizes make no whole parts."""
    x, axis = numbers(*shape), len(shape) - 2
    want = getattr(x, name)(axis)
    s = check(loops(name, x, axes=[axis], keepdims=False), [x], want, 1e-4)
    (launch,) = launches_of(s.function)
    assert is_const(launch.extent, blocks)
    assert ("vectorized(4)" in str(s.function)) == (shape[-1] % 4 == 0)
    assert "global" not in scopes(s).values(), "what lies between stays on the chip"


@pytest.mark.parametrize("rows", [1, 2, 5, 8])
@pytest.mark.parametrize(("length", "columns", "lanes"), [(700, 384, 4), (301, 99, 1)])
def test_few_rows_times_a_matrix_are_one_launch(
    rows: int, length: int, columns: int, lanes: int
) -> None:
    """The matrix is read once: each thread has sums of all rows."""
    x, w = numbers(rows, length), numbers(length, columns)
    s = check(loops("matmul", x, w), [x, w], x @ w, 1e-4)
    assert len(launches_of(s.function)) == 1
    assert f'alloc(f32[1, {rows}, {lanes}], scope="local")' in str(lowered(s.function, TARGET))


def test_the_place_of_the_greatest_element() -> None:
    x = numbers(9, 130)
    check(loops("argmax", x, axis=1, keepdims=False), [x], x.argmax(1))


def test_windows_are_written_out_and_padding_is_folded_in() -> None:
    x = numbers(2, 3, 9, 9)
    function = loops("max_pool", x, kernel=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    s = scheduled(function)
    assert len(launches_of(s.function)) == 1
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=-np.inf)
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))[:, :, ::2, ::2]
    want = windows.max((-1, -2))
    got = run(s.function, [x], [(want.shape, "float32")])[0]
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(
    ("width", "channels", "stride", "wanted"),
    [
        (14, 24, 1, [7, 2]),
        (14, 24, 2, [7, 2]),
        (8, 12, 1, [4, 4]),
        (13, 16, 1, [4]),  # thirteen windows are not shared out evenly
        (8, 9, 1, []),  # an odd number of channels
    ],
)
def test_a_thread_has_several_windows_that_overlap(
    monkeypatch: pytest.MonkeyPatch, width: int, channels: int, stride: int, wanted: list[int]
) -> None:
    monkeypatch.setattr(results, "_ENOUGH", 0)
    x, weights = numbers(2, 9, stride * width + 2, channels), numbers(3, 3, channels)
    X, W = te.placeholder(x.shape, name="X"), te.placeholder(weights.shape, name="W")
    i, j = te.reduce_axis(3, name="i"), te.reduce_axis(3, name="j")
    out = te.compute(
        (2, 7, width, channels),
        lambda n, r, c, o: te.sum(X[n, r + i, c * stride + j, o] * W[i, j, o], axis=(i, j)),
        name="Y",
    )
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), (1, 2))[:, :, ::stride][
        :, :, :width
    ]
    want = np.einsum("nrcoij,ijo->nrco", windows, weights)
    s = check(te.function([X, W], [out], name="f"), [x, weights], want)
    kinds = ("unrolled", "vectorized")
    _, _, *own = [loop for loop in s.loops("Y") if s.loop_of(loop).kind in kinds]
    assert [extent_of_loop(s, loop) for loop in own] == wanted


def test_many_rows_have_few_threads_each() -> None:
    x = numbers(3, 5461, 96)
    mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    one, zero = np.ones(96, "f4"), np.zeros(96, "f4")
    function = loops("layer_norm", x, one, zero, axis=-1, epsilon=1e-5)
    s = check(function, [x, one, zero], (x - mean) / np.sqrt(variance + 1e-5), 1e-4)
    (launch,) = launches_of(s.function)
    assert threads_of(launch) == {"threadIdx.x": 16, "threadIdx.y": 3}


@pytest.mark.parametrize("symbolic", [False, True])
def test_groups_of_channels_are_reduced_once(symbolic: bool) -> None:
    """Not once for each of their channels, which would race besides."""
    x = numbers(2, 8, 6, 6)
    scale, shift = numbers(8), numbers(8)
    groups = x.reshape(2, 2, -1)
    normal = (groups - groups.mean(-1, keepdims=True)) / np.sqrt(
        groups.var(-1, keepdims=True) + 1e-5
    )
    want = normal.reshape(x.shape) * scale[:, None, None] + shift[:, None, None]
    function = loops("group_norm", x, scale, shift, symbolic=symbolic, groups=2)
    check(function, [x, scale, shift], want.astype("float32"), 1e-3)
