"""Transposes on GPUs: by tiles in shared memory."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

from tests.schedule.gpu.launches import launches_of, run, scheduled, threads_of
from tilewright import te
from tilewright.ir import Alloc, Expr, Function, evaluate, walk
from tilewright.schedule import Rules


def transposed(shape: tuple[Any, ...], axes: tuple[int, ...], dtype: str = "float32") -> Function:
    a = te.placeholder(shape, dtype, name="A")
    place = [axes.index(n) for n in range(len(axes))]
    out = te.compute(
        [shape[n] for n in axes], lambda *i: a[tuple(i[place[n]] for n in range(len(i)))], name="B"
    )
    return te.function([a], [out], name="f")


def _numbers(exprs: Iterable[Expr]) -> list[int]:
    return [int(evaluate(e, {})) for e in exprs]


@pytest.mark.parametrize(
    ("shape", "axes"),
    [
        ((64, 96), (1, 0)),
        ((50, 70), (1, 0)),
        ((3, 40, 5, 33), (0, 3, 2, 1)),
        ((4, 33, 64), (2, 0, 1)),
    ],
)
@pytest.mark.parametrize("symbolic", [False, True])
def test_tiles_go_through_shared_memory(
    shape: tuple[int, ...], axes: tuple[int, ...], symbolic: bool
) -> None:
    dims = [te.var(f"n{k}") for k in range(len(shape))] if symbolic else shape
    s = scheduled(transposed(tuple(dims), axes))
    assert not s.declined
    (launch,) = launches_of(s.function)
    assert threads_of(launch) == {"threadIdx.x": 32, "threadIdx.y": 8}
    (tile,) = [b for a in walk(s.function.body) if isinstance(a, Alloc) for b in a.buffers]
    assert tile.scope == "shared"
    if not symbolic:
        assert _numbers(tile.stride_exprs()[1:]) == [33, 1]
    x = np.random.default_rng(0).random(shape, np.float32)
    want = x.transpose(axes)
    known = dict(zip(dims, shape, strict=True)) if symbolic else None
    (got,) = run(s.function, [x], [(want.shape, "float32")], known)
    np.testing.assert_array_equal(got, want)


def test_thin_ones_are_left_to_the_caches() -> None:
    s = scheduled(transposed((4, 1000), (1, 0)))
    assert "threadIdx.y" not in threads_of(launches_of(s.function)[0])


@pytest.mark.parametrize(("dtype", "lanes"), [("float16", 2), ("int8", 4)])
@pytest.mark.parametrize("shape", [(128, 256), (52, 148), (3, 72, 136)])
def test_narrow_elements_move_by_vectors(dtype: str, lanes: int, shape: tuple[int, ...]) -> None:
    axes = (1, 0) if len(shape) == 2 else (0, 2, 1)
    chosen = Rules(True, {"transposes(B).lanes": 1})
    s = scheduled(transposed(shape, axes, dtype), rules=chosen)
    (launch,) = launches_of(s.function)
    assert threads_of(launch) == {"threadIdx.x": 32, "threadIdx.y": 8}
    (tile,) = [b for a in walk(s.function.body) if isinstance(a, Alloc) for b in a.buffers]
    assert _numbers(tile.stride_exprs()[1:]) == [32 * lanes + 1, 1]
    x = np.random.default_rng(0).integers(-100, 100, shape).astype(dtype)
    want = np.ascontiguousarray(x.transpose(axes))
    (got,) = run(s.function, [x], [(want.shape, dtype)])
    np.testing.assert_array_equal(got, want)


def test_vectors_only_where_tiles_are_plentiful_and_rows_are_whole() -> None:
    def lanes(*shape: int) -> int:
        (tile, *_) = [
            b
            for a in walk(scheduled(transposed(shape, (1, 0), "float16")).function.body)
            if isinstance(a, Alloc)
            for b in a.buffers
        ]
        return _numbers(tile.shape)[-1] // 32

    assert lanes(2048, 2048) == 2
    assert lanes(197, 768) == 1
    assert lanes(2048, 2049) == 1
