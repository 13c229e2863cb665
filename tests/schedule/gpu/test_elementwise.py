"""Independent elements on GPUs: vectors, several for each thread, blocks of threads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.schedule.gpu.launches import launches_of, run, scheduled, threads_of
from tilewright import te
from tilewright.ir import Const, Expr, For, Function, select, walk
from tilewright.schedule import Schedule


def scaled(*shape: Any, dtype: str = "float32") -> Function:
    a = te.placeholder(shape, dtype, name="A")
    return te.function([a], [te.compute(shape, lambda *i: a[i] + a[i], name="B")], name="f")


def lanes(s: Schedule) -> list[int]:
    loops = [f for f in walk(s.function.body) if isinstance(f, For) and f.kind == "vectorized"]
    return [int(f.extent.value) for f in loops if isinstance(f.extent, Const)]


@pytest.mark.parametrize(
    ("shape", "dtype", "wanted"),
    [
        ((64, 128), "float32", [4]),
        ((64, 128), "int8", [16]),
        ((64, 128), "float64", [2]),
        ((32, 3, 7, 2), "float32", [4]),  # 1344 elements in a row
        ((5, 7), "float32", []),
    ],
)
def test_threads_take_16_bytes_at_a_time(shape: Any, dtype: str, wanted: list[int]) -> None:
    s = scheduled(scaled(*shape, dtype=dtype))
    assert lanes(s) == wanted
    a = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
    np.testing.assert_array_equal(run(s.function, [a], [(shape, dtype)])[0], a + a)


@pytest.mark.parametrize("channels", [4, 8])
def test_few_channels_come_to_lie_side_by_side(channels: int) -> None:
    """A thread writes those of a pixel at once, and reads what is next to the next thread's."""
    a = te.placeholder((2, 3, 5, 7), name="A")

    def value(n: Expr, y: Expr, x: Expr, c: Expr) -> Expr:
        return select(c < 3, a[n, c, y, x], 0.0).astype("float16")

    b = te.compute((2, 5, 7, channels), value, name="B")
    s = scheduled(te.function([a], [b], name="f"))
    assert lanes(s) == [channels]
    given = np.random.default_rng(0).random((2, 3, 5, 7), np.float32)
    want = np.zeros((2, 5, 7, channels), np.float16)
    want[..., :3] = given.transpose(0, 2, 3, 1)
    np.testing.assert_array_equal(run(s.function, [given], [(want.shape, "float16")])[0], want)


def test_large_tensors_give_each_thread_several_vectors() -> None:
    s = scheduled(scaled(4096, 2048))
    (launch,) = launches_of(s.function)
    assert threads_of(launch) == {"threadIdx.x": 256}
    assert launch.extent.value == 4096 * 2048 // 4 // 4 // 256  # type: ignore[attr-defined]


def test_small_tensors_have_small_blocks() -> None:
    (launch,) = launches_of(scheduled(scaled(3, 5)).function)
    assert threads_of(launch) == {"threadIdx.x": 16}


def test_symbolic_sizes_are_launched_as_one_loop() -> None:
    n, m = te.var("n"), te.var("m")
    s = scheduled(scaled(n, m))
    assert len(launches_of(s.function)) == 1
    for shape in [(3, 5), (70, 33), (0, 4)]:
        a = np.random.default_rng(0).random(shape, np.float32)
        np.testing.assert_array_equal(run(s.function, [a], [(shape, "float32")])[0], a + a)


def test_broadcasts_read_neighbours_or_the_same() -> None:
    a, b = te.placeholder((8, 16, 32), name="A"), te.placeholder((16, 1), name="B")
    c = te.compute((8, 16, 32), lambda i, j, k: a[i, j, k] * b[j, 0], name="C")
    s = scheduled(te.function([a, b], [c], name="f"))
    assert lanes(s) == [4]
    x, y = (np.random.default_rng(0).random(t, np.float32) for t in [(8, 16, 32), (16, 1)])
    np.testing.assert_array_equal(run(s.function, [x, y], [(x.shape, "float32")])[0], x * y)


def test_digits_that_are_no_powers_of_two_are_told_apart() -> None:
    """The loops of (2, 4, 3, 8) fused and cut by 4 and 256: no index shows the whole number."""
    a = te.placeholder((8, 3, 16, 8), name="A")
    b = te.compute((8, 16, 3, 8), lambda i, j, k, m: a[i, k, j, m] + 1.0, name="B")
    s = scheduled(te.function([a], [b], name="f"))
    assert lanes(s) == [4] and not s.declined
    x = np.random.default_rng(0).random((8, 3, 16, 8), np.float32)
    want = x.transpose(0, 2, 1, 3) + 1
    np.testing.assert_array_equal(run(s.function, [x], [(want.shape, "float32")])[0], want)
