"""What is in no block, or cannot be shared out, is launched too."""

# pyright: reportMissingParameterType=false, reportUndefinedVariable=false

from __future__ import annotations

import numpy as np
import pytest

from tests.schedule.gpu.launches import (
    check_launches,
    interpreted,
    launches_of,
    scheduled,
    threads_of,
)
from tilewright.ir import Alloc, Const, Function, walk
from tilewright.schedule import RefusedError, Schedule
from tilewright.tensor import alloc, f32, i64, parallel, script


def grid(function: Function) -> list[tuple[int, int]]:
    """Blocks and threads of each launch."""
    found: list[tuple[int, int]] = []
    for launch in launches_of(function):
        assert isinstance(launch.extent, Const)
        found.append((int(launch.extent.value), threads_of(launch)["threadIdx.x"]))
    return found


@script
def shifted(x=f32[100], y=f32[100]):
    for i in parallel(100):
        if i > 0:
            y[i] = x[i - 1]
        else:
            y[i] = 0.0


@script
def counted(x=f32["n"], count=i64[1], places=i64["n"]):
    found = 0
    for i in range(x.shape[0]):
        if x[i] > 0.0:
            places[found] = i
            found += 1
    count[0] = found


@script
def twice(x=f32[8], y=f32[8], z=f32[8]):
    y[0] = x[0]
    y[1] = x[1]
    for i in parallel(8):
        z[i] = x[i]
    for i in range(2, 8):
        y[i] = y[i - 1] + y[i - 2]


@script
def reversed_rows(x=f32["m", "n"], y=f32["m", "n"]):
    for row in parallel(x.shape[0]):
        spare = alloc(f32["n"])
        for i in range(x.shape[1]):
            spare[i] = x[row, i]
        for i in range(x.shape[1]):
            y[row, i] = spare[x.shape[1] - 1 - i]


def test_iterations_of_parallel_loops_are_threads() -> None:
    s = scheduled(shifted)
    assert grid(s.function) == [(2, 64)]
    x = np.arange(100, dtype="float32")
    np.testing.assert_array_equal(
        interpreted(s.function, [x], [((100,), "float32")])[0], [0, *x[:-1]]
    )


def test_what_runs_in_order_is_done_by_one_thread() -> None:
    s = scheduled(counted)
    assert grid(s.function) == [(1, 1)]
    x = np.array([1, -1, 2, 0, 3], "float32")
    count, places = interpreted(s.function, [x], [((1,), "int64"), ((5,), "int64")])
    assert count == 3 and places[:3].tolist() == [0, 2, 4]


def test_neighbours_are_one_launch() -> None:
    s = scheduled(twice)
    assert grid(s.function) == [(1, 1), (1, 8), (1, 1)]
    y, z = interpreted(s.function, [np.ones(8, "float32")], [((8,), "float32")] * 2)
    assert y.tolist() == [1, 1, 2, 3, 5, 8, 13, 21] and z.tolist() == [1] * 8


def test_memory_of_an_iteration_is_allocated_for_all() -> None:
    s = scheduled(reversed_rows)
    (launch,) = launches_of(s.function)
    assert not any(isinstance(stmt, Alloc) for stmt in walk(launch))
    x = np.arange(12, dtype="float32").reshape(3, 4)
    (y,) = interpreted(s.function, [x], [((3, 4), "float32")])
    np.testing.assert_array_equal(y, x[:, ::-1])


def test_the_number_of_threads_is_checked() -> None:
    s = Schedule(shifted)
    with pytest.raises(RefusedError, match="0 is no number of threads"):
        s.launch_rest(0)
    s.launch_rest(32)
    check_launches(s.function)
    assert grid(s.function) == [(4, 32)]
