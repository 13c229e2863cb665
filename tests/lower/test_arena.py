"""The arena of host programs: what is live at the same time lies apart."""

from __future__ import annotations

import cProfile
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.ir import (
    Alloc,
    Buffer,
    Call,
    Const,
    DType,
    Evaluate,
    Expr,
    Function,
    Load,
    Stmt,
    Store,
    Var,
    While,
    address_of,
    all_exprs,
    const,
    evaluate,
    seq,
    verify,
    walk,
)
from tilewright.lower.arena import arena_plan, plan_arena

n = Var("n")
FLAG = Buffer("flag", "int64", (1,))


def kernel(*buffers: Buffer) -> Stmt:
    args = tuple(address_of(Load(b, (const(0),) * b.ndim)) for b in buffers)
    return Evaluate(Call("kernel.f", (*args, Const(0, "uint64")), DType.of("int32")))


def program(body: Stmt, *buffers: Buffer, params: tuple[Buffer, ...] = ()) -> Function:
    return Function("main", (FLAG, *params), Alloc(buffers, body) if buffers else body)


def offsets(function: Function, dims: dict[Var, int] | None = None) -> list[list[int]]:
    """For each call, where in the arena its operands lie."""
    found: list[list[int]] = []
    known, slots = dict(dims or {}), dict[int, int]()

    def number(expr: Expr) -> int:
        return int(evaluate(expr, known, lambda _b, place, _mask: np.array(slots[int(place[0])])))

    for stmt in walk(function.body):
        if isinstance(stmt, Store):
            assert stmt.buffer.name == "slots"
            slots[number(stmt.indices[0])] = number(stmt.value)
        if isinstance(stmt, Evaluate):
            assert isinstance(stmt.call, Call)
            found.append([number(_offset(a)) for a in stmt.call.args[:-1]])
    return found


def _offset(address: Expr) -> Expr:
    assert isinstance(address, Call) and isinstance(address.args[0], Load)
    assert address.args[0].buffer.name == "arena"
    return address.args[0].indices[0]


def size(function: Function, dims: dict[Var, int] | None = None) -> int:
    assert isinstance(function.body, Alloc)
    return int(evaluate(function.body.buffers[0].shape[0], dims or {}))


def chain(length: int, *shape: object) -> tuple[Function, list[Buffer]]:
    buffers = [Buffer(f"b{k}", "float32", shape) for k in range(length)]
    calls = [kernel(a, b) for a, b in pairwise(buffers)]
    return program(seq(*calls), *buffers), buffers


def test_a_chain_takes_two_buffers() -> None:
    planned = plan_arena(chain(10, 100)[0])
    verify(planned)
    assert size(planned) == 2 * 448
    assert all(len(set(pair)) == 2 for pair in offsets(planned))


def test_a_symbolic_chain_takes_two_slots() -> None:
    x = Buffer("x", "float32", (n,))
    function, _ = chain(10, n, 4)
    planned = plan_arena(Function("main", (*function.params, x), function.body))
    assert size(planned, {n: 10}) == 2 * 192
    assert all(len(set(pair)) == 2 for pair in offsets(planned, {n: 10}))


def test_hundreds_of_slots_do_not_nest() -> None:
    x = Buffer("x", "float32", (n,))
    buffers = [Buffer(f"b{k}", "float32", (n,)) for k in range(500)]
    planned = plan_arena(program(kernel(*buffers), *buffers, params=(x,)))
    verify(planned)
    assert offsets(planned, {n: 10}) == [[64 * k for k in range(500)]]
    assert size(planned, {n: 10}) == 500 * 64


def test_a_slot_is_as_large_as_its_largest_buffer() -> None:
    x = Buffer("x", "float32", (n,))
    a, b, c = (Buffer(k, "float32", (n, e)) for k, e in (("a", 4), ("b", 1), ("c", 16)))
    function = program(seq(kernel(a, b), kernel(b, c)), a, b, c, params=(x,))
    assert size(plan_arena(function), {n: 16}) == 64 + 16 * 64


def test_sizes_that_others_cover_are_not_part_of_a_slot() -> None:
    """No dimension is negative: the largest of n * 4, n * 32, … is known, and the size is short."""
    x = Buffer("x", "float32", (n,))
    buffers = [Buffer(f"b{k}", "float32", (n, 16 * (1 + k % 7))) for k in range(40)]
    calls = seq(*(kernel(a, b) for a, b in pairwise(buffers)))
    planned = plan_arena(program(calls, *buffers, params=(x,)))
    assert isinstance(planned.body, Alloc)
    assert "max" not in str(planned.body.buffers[0].shape[0])


def test_what_a_loop_needs_from_outside_lives_through_it() -> None:
    a, b, c = (Buffer(k, "float32", (16,)) for k in "abc")
    inside = While(FLAG[0] > 0, Alloc((b, c), seq(kernel(a, b), kernel(b, c))))
    planned = plan_arena(program(seq(kernel(a), inside), a))
    (first,), (again, second), (_, third) = offsets(planned)
    assert first == again and len({first, second, third}) == 3


def test_what_is_made_anew_in_each_trip_does_not() -> None:
    a, b = (Buffer(k, "float32", (16,)) for k in "ab")
    inside = While(FLAG[0] > 0, Alloc((a, b), seq(kernel(a), kernel(b))))
    assert size(plan_arena(program(inside))) == 64


def test_numbers_that_the_program_reads_keep_their_own_memory() -> None:
    a, b = Buffer("a", "int64", (1,)), Buffer("b", "int64", (1,))
    body = seq(kernel(a), Store(FLAG, (const(0),), a[0]), kernel(b))
    planned = plan_arena(program(body, a, b))
    loads = [e for e in all_exprs(planned.body) if isinstance(e, Load) and e.buffer is a]
    assert loads and size(planned) == 64


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 200), st.integers(0, 30), st.integers(0, 12)), max_size=40)
)
def test_live_buffers_never_overlap(spans: list[tuple[int, int, int]]) -> None:
    buffers = [Buffer(f"b{k}", "uint8", (s,)) for k, (s, _, _) in enumerate(spans)]
    steps = [
        [
            b
            for b, (_, first, extent) in zip(buffers, spans, strict=True)
            if first <= t <= first + extent
        ]
        for t in range(43)
    ]
    # Each step touches all that is live at it.
    function = program(seq(*(kernel(*s) for s in steps if s)), *buffers) if spans else None
    if function is None:
        return
    planned = plan_arena(function)
    total = size(planned)
    for live, places in zip((s for s in steps if s), offsets(planned), strict=True):
        taken = np.zeros(total, bool)
        for buffer, start in zip(live, places, strict=True):
            end = start + int(evaluate(buffer.shape[0], {}))
            assert start % 64 == 0 and end <= total
            assert not taken[start:end].any()
            taken[start:end] = True
    assert total <= sum(-(-s // 64) * 64 for s, _, _ in spans)


@pytest.mark.parametrize("extent", [100, n])
def test_planning_is_near_linear(extent: object) -> None:
    def work(length: int) -> int:
        x = Buffer("x", "float32", (n,))
        function, _ = chain(length, extent)
        main = Function("main", (*function.params, x), function.body)
        return calls_during(lambda: plan_arena(main))

    assert work(800) < 5 * work(200)


def test_mending_plans_is_near_linear() -> None:
    """The same where buffers in order of time take more than what is live."""

    def work(length: int) -> int:
        buffers, calls = list[Buffer](), list[Stmt]()
        for k in range(length):
            sizes = zip("abcd", (3, 1, 4, 1), strict=True)
            a, b, c, d = (Buffer(f"{name}{k}", "uint8", (64 * s,)) for name, s in sizes)
            calls += [kernel(a), kernel(a, b), kernel(b, c), kernel(c, d)]
            buffers += [a, b, c, d]
        function = program(seq(*calls), *buffers)
        return calls_during(lambda: plan_arena(function))

    assert work(200) < 5 * work(50)


def calls_during(action: Callable[[], object]) -> int:
    """The number of functions called: unlike seconds, the same on every machine."""
    profile = cProfile.Profile()
    profile.runcall(action)
    return sum(entry.callcount for entry in profile.getstats())


def test_large_buffers_do_not_wait_for_small_ones() -> None:
    """In order of time, the large one would find the gap of the first one taken by the small."""
    first, small, large, last = (
        Buffer(name, "uint8", (64 * k,)) for name, k in zip("abcd", (3, 1, 4, 1), strict=True)
    )
    body = seq(kernel(first), kernel(first, small), kernel(small, large), kernel(large, last))
    plan = arena_plan(program(body, first, small, large, last))
    assert plan.live == 5 * 64
    assert plan.size == plan.live


def forked(elements: int) -> Function:
    """Two chains from one value, which are joined: a -> b -> c -> g, a -> d -> e -> g."""
    a, b, c, d, e, g = (Buffer(name, "uint8", (elements,)) for name in "abcdeg")
    calls = [kernel(a), kernel(a, b), kernel(b, c), kernel(a, d), kernel(d, e), kernel(c, e, g)]
    return program(seq(*calls), a, b, c, d, e, g)


def test_branches_side_by_side_share_no_memory() -> None:
    places = {p.name: p.offset for p in arena_plan(forked(64), side_by_side=True).places}
    assert len({places[n] for n in "abcde"}) == 5
    # What joins them comes after all that used the first ones.
    assert places["g"] in (places["a"], places["b"], places["d"])
    assert arena_plan(forked(64)).size == 3 * 64


def test_branches_share_memory_that_would_be_too_much() -> None:
    size = 48 << 20
    assert arena_plan(forked(size), side_by_side=True).size == 3 * size


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 5), st.integers(1, 40)), max_size=12),
    st.booleans(),
)
@settings(max_examples=50, deadline=None)
def test_plans_lie_apart_and_take_what_is_live_at_least(
    rows: list[tuple[int, int, int]], side_by_side: bool
) -> None:
    buffers = [Buffer(f"b{k}", "uint8", (64 * size,)) for k, (_, _, size) in enumerate(rows)]
    steps = [
        kernel(
            *(
                b
                for b, (first, more, _) in zip(buffers, rows, strict=True)
                if first <= t <= first + more
            )
        )
        for t in range(15)
    ]
    plan = arena_plan(program(seq(*steps), *buffers), side_by_side=side_by_side)
    assert plan.live <= plan.size <= sum(p.size for p in plan.places)
    for k, a in enumerate(plan.places):
        for b in plan.places[k + 1 :]:
            together = a.first <= b.last and b.first <= a.last
            assert not together or a.offset + a.size <= b.offset or b.offset + b.size <= a.offset
