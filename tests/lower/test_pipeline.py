"""The whole of lowering: every stage does what the function did, and so does the code."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from operator import mul
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tilewright as tw
from tilewright import te
from tilewright.ir import Alloc, Function, interpret, replace_buffers, walk

#: Not to be interpreted: blocks that leave their domains.
SKIPPED = "overcompute"


def matmul(m: Any, n: Any, k: Any) -> Function:
    a, b = te.placeholder((m, k), name="A"), te.placeholder((k, n), name="B")
    r = te.reduce_axis(k, name="k")
    c = te.compute((m, n), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")
    d = te.compute((m, n), lambda i, j: te.max(c[i, j], 0.0) + 1.0, name="D")
    return te.function([a, b], [d], name="matmul")


def window(n: int) -> Function:
    """A padded sum over neighbours, through a stage of its own."""
    x = te.placeholder((n,), name="X")
    padded = te.compute(
        (n + 4,), lambda i: te.if_then_else((i >= 2) & (i < n + 2), x[i - 2], 0.0), name="P"
    )
    r = te.reduce_axis(5, name="r")
    y = te.compute((n,), lambda i: te.sum(padded[i + r], axis=r), name="Y")
    return te.function([x], [y], name="window")


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(-4, 5, shape).astype(np.float32)


def with_flat_buffers(function: Function) -> Function:
    """Where accesses have one index, buffers with one dimension."""
    allocs = [s for s in walk(function.body) if isinstance(s, Alloc)]
    buffers = [*function.buffers, *(b for s in allocs for b in s.buffers)]
    flat = {b: b.with_(shape=(reduce(mul, b.shape),)) for b in buffers}
    params = tuple(flat.get(p, p) for p in function.params)  # type: ignore[arg-type]
    return replace(function, params=params, body=replace_buffers(function.body, flat))


def agree(
    schedule: tw.Schedule, *inputs: np.ndarray, output: tuple[int, ...], **sizes: int
) -> None:
    """All stages and the code give the same as the function that was scheduled."""
    wanted = np.zeros(output, np.float32)
    module = tw.build(schedule)
    interpret(module.ir("given"), *inputs, wanted)
    names = [name for name in module._stages if name != SKIPPED]
    for name in names:
        got = np.zeros(output, np.float32)
        if names.index(name) < names.index("flatten"):
            interpret(module.ir(name), *inputs, got)
        else:
            flat = [a.reshape(-1) for a in (*inputs, got)]
            interpret(with_flat_buffers(module.ir(name)), *flat, **sizes)
        np.testing.assert_array_equal(got, wanted, err_msg=name)
    got = np.full(output, np.nan, np.float32)
    module(*inputs, got)
    np.testing.assert_array_equal(got, wanted, err_msg="compiled")


@pytest.mark.parametrize("shape", [(7, 9, 5), (8, 16, 4), (1, 1, 1)])
def test_tiles_and_epilogues(shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    s = tw.Schedule(matmul(m, n, k))
    i, j, r = s.loops("C")
    io, ii = s.split(i, 4)
    jo, ji = s.split(j, 8)
    s.reorder(io, jo, r, ii, ji)
    s.vectorize(ji)
    s.unroll(ii)
    s.parallel(io)
    s.reverse_compute_at("D", jo)
    agree(s, numbers(m, k), numbers(k, n), output=(m, n))


def test_a_stage_computed_where_it_is_used() -> None:
    s = tw.Schedule(window(37))
    (i, _r) = s.loops("Y")
    io, _ii = s.split(i, 8)
    s.compute_at("P", io)
    agree(s, numbers(37), output=(37,))


@st.composite
def schedules(draw: st.DrawFn) -> tw.Schedule:
    s = tw.Schedule(matmul(*(draw(st.integers(1, 11)) for _ in range(3))))
    for block in ("C", "D"):
        for _ in range(draw(st.integers(0, 3))):
            s.split(draw(st.sampled_from(s.loops(block))), draw(st.integers(1, 6)))
    for block in ("C", "D"):
        loops = draw(st.permutations(s.loops(block)))
        if s.can("reorder", *loops):
            s.reorder(*loops)
        for primitive in draw(st.permutations(["vectorize", "unroll", "parallel"])):
            loop = draw(st.sampled_from(s.loops(block)))
            if s.can(primitive, loop):
                getattr(s, primitive)(loop)
    return s


@settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow], database=None
)
@given(schedules())
def test_random_schedules(schedule: tw.Schedule) -> None:
    a, b = schedule.function.buffers[:2]
    (m, k), n = (int(e.value) for e in a.shape), int(b.shape[1].value)  # type: ignore[attr-defined]
    agree(schedule, numbers(m, k), numbers(k, n), output=(m, n))


@pytest.mark.parametrize("n", [0, 1, 8, 19])
def test_symbolic_sizes(n: int) -> None:
    size = te.var("n")
    s = tw.Schedule(matmul(size, 6, 3))
    i, j, r = s.loops("C")
    io, ii = s.split(i, 4)
    s.reorder(io, r, ii, j)
    s.unroll(ii)
    agree(s, numbers(n, 3), numbers(3, 6), output=(n, 6), n=n)
