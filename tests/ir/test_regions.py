"""Regions of blocks: boxes in terms of the block's own variables."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.ir import (
    Alloc,
    Block,
    Buffer,
    Evaluate,
    Expr,
    For,
    If,
    Iter,
    Let,
    Load,
    Ramp,
    Region,
    Stmt,
    Store,
    Var,
    address_of,
    broadcast,
    call,
    cast,
    const,
    declare,
    evaluate,
    infer_regions,
    make_block,
    maximum,
    minimum,
    select,
    seq,
    stmt_text,
    whole_region,
    with_inferred_regions,
)

A, B = Buffer("A", "float32", (16, 16)), Buffer("B", "float32", (16, 16))
V, W = Buffer("V", "float32", (64,)), Buffer("W", "float32", (64,))
P = Buffer("P", "int64", (64,))
i, j, k, t, n = (Var(name) for name in "ijktn")


def loop(var: Var, extent: Any, body: Stmt) -> Stmt:
    return For(var, const(extent) if isinstance(extent, int) else extent, "serial", body)


def text(regions: tuple[Region, ...]) -> list[str]:
    return [
        f"{r.buffer.name}[{', '.join(f'{x.start}+:{x.extent}' for x in r.ranges)}]" for r in regions
    ]


def reads(*loads: Expr) -> list[str]:
    """What a block that sums these reads."""
    total: Expr = const(0.0)
    for load in loads:
        total = total + load
    return text(infer_regions(Store(W, (i,), total))[0])


def reads_in(body: Stmt) -> list[str]:
    return text(infer_regions(body)[0])


# ---- one access ---------------------------------------------------------------------------------


def test_own_variables_give_single_elements() -> None:
    found = infer_regions(Store(B, (i, j), A[j + 1, i * 2] * 2.0))
    assert text(found[0]) == ["A[j + 1+:1, i * 2+:1]"]
    assert text(found[1]) == ["B[i+:1, j+:1]"]


def test_an_inner_loop_spans_its_range() -> None:
    assert reads_in(loop(k, 4, Store(W, (i,), V[i * 4 + k]))) == ["V[i * 4+:4]"]
    assert reads_in(loop(k, 4, Store(W, (i,), V[i - k]))) == ["V[i - 3+:4]"]
    assert reads_in(loop(k, 4, Store(W, (i,), V[k * 3 + 1]))) == ["V[1+:10]"]


def test_a_symbolic_loop_spans_a_symbolic_range() -> None:
    assert reads_in(loop(k, n, Store(W, (i,), V[i * 2 + k]))) == ["V[i * 2+:n]"]


def test_a_variable_that_cancels_widens_nothing() -> None:
    assert reads_in(loop(k, 4, Store(W, (i,), V[i + k * 2 - k - k]))) == ["V[i+:1]"]


def test_a_loop_within_a_loop() -> None:
    body = loop(k, 4, loop(t, 3, Store(W, (i,), V[k * 3 + t])))
    assert reads_in(body) == ["V[0+:12]"]
    triangle = loop(k, 4, loop(t, k + 1, Store(W, (i,), V[t])))
    assert reads_in(triangle) == ["V[0+:4]"]


def test_floor_division_and_remainder() -> None:
    assert reads_in(loop(k, 8, Store(W, (i,), V[k // 3]))) == ["V[0+:3]"]
    assert reads_in(loop(k, 8, Store(W, (i,), V[k % 5]))) == ["V[0+:5]"]
    assert reads_in(loop(k, 3, Store(W, (i,), V[(k + 5) % 8]))) == ["V[5+:3]"]


def test_min_max_and_choices() -> None:
    assert reads_in(loop(k, 8, Store(W, (i,), V[minimum(k, 5)]))) == ["V[0+:6]"]
    assert reads_in(loop(k, 8, Store(W, (i,), V[maximum(k, 5)]))) == ["V[5+:3]"]
    either = select(i > 2, k + 10, k)
    assert reads_in(loop(k, 4, Store(W, (i,), V[either]))) == ["V[0+:14]"]


def test_widening_casts_pass_and_narrowing_ones_do_not() -> None:
    small = Var("s", "int32")
    assert reads_in(loop(small, const(4, "int32"), Store(W, (i,), V[cast(small, "int64")]))) == [
        "V[0+:4]"
    ]
    narrowed = cast(cast(k, "int8"), "int64")
    assert reads_in(loop(k, 300, Store(W, (i,), V[narrowed]))) == ["V[0+:64]"]


def test_loaded_indices_span_the_whole_dimension() -> None:
    assert reads(Load(V, (P[i],))) == ["V[0+:64]", "P[i+:1]"]


def test_a_loop_of_loaded_length_spans_the_whole_dimension() -> None:
    assert reads_in(loop(k, P[i], Store(W, (i,), V[k]))) == ["P[i+:1]", "V[0+:64]"]


def test_unknown_functions_of_inner_variables_span_the_whole_dimension() -> None:
    assert reads_in(loop(k, 4, Store(W, (i,), V[k * n]))) == ["V[0+:64]"]
    assert reads_in(loop(k, 4, Store(W, (i,), V[k * n - n * k]))) == ["V[0+:64]"]


def test_vectors() -> None:
    row = Load(V, (Ramp(i * 8, const(1), 8),))
    assert text(infer_regions(Store(W, (Ramp(i * 8, const(1), 8),), row))[0]) == ["V[i * 8+:8]"]
    back = Load(V, (Ramp(i, const(-2), 4),))
    assert text(infer_regions(Store(W, (Ramp(i, const(1), 4),), back))[0]) == ["V[i - 6+:7]"]
    moved = Load(V, (Ramp(i, const(1), 4) + broadcast(k, 4),))
    stored = loop(k, 3, Store(W, (Ramp(i, const(1), 4),), moved))
    assert reads_in(stored) == ["V[i+:6]"]


# ---- several accesses ---------------------------------------------------------------------------


def test_accesses_of_one_buffer_give_one_box() -> None:
    assert reads(V[i - 1], V[i], V[i + 1]) == ["V[i - 1+:3]"]
    assert reads(A[i, j], A[i + 2, j]) == ["A[i+:3, j+:1]"]


def test_accesses_that_cannot_be_ordered_are_bounded_by_both() -> None:
    assert reads(V[i], V[j]) == ["V[min(i, j)+:max(i, j) - min(i, j) + 1]"]


def test_buffers_in_order_of_appearance() -> None:
    assert reads(V[i], A[i, i], V[i]) == ["V[i+:1]", "A[i+:1, i+:1]"]


# ---- statements ---------------------------------------------------------------------------------


def test_conditions_and_lets_are_read() -> None:
    x = Var("x", "float32")
    body = If(V[i] > 0.0, Let(x, A[i, i], Store(W, (i,), x)), Store(W, (i + 1,), const(0.0)))
    found = infer_regions(body)
    assert text(found[0]) == ["V[i+:1]", "A[i+:1, i+:1]"]
    assert text(found[1]) == ["W[i+:2]"]


def test_a_let_stands_for_its_value() -> None:
    at = Var("at")
    assert reads_in(loop(k, 4, Let(at, i * 4 + k, Store(W, (i,), V[at])))) == ["V[i * 4+:4]"]
    assert reads_in(Let(at, P[i], Store(W, (i,), V[at]))) == ["P[i+:1]", "V[0+:64]"]


def test_what_is_allocated_inside_does_not_show() -> None:
    own = Buffer("own", "float32", (4,))
    body = Alloc((own,), seq(Store(own, (const(0),), V[i]), Store(W, (i,), own[0])))
    found = infer_regions(body)
    assert (text(found[0]), text(found[1])) == (["V[i+:1]"], ["W[i+:1]"])


def test_a_nested_block_counts_by_its_regions() -> None:
    vi, vk = Var("vi"), Var("vk")
    inner = make_block(
        "inner",
        [Iter(vi, const(16), "spatial"), Iter(vk, const(64), "reduce")],
        [i, t * 4 + k],
        Store(W, (vi,), W[vi] + V[vk]),
        init=Store(W, (vi,), const(0.0)),
    )
    found = infer_regions(loop(k, 4, inner))
    assert (text(found[0]), text(found[1])) == (["V[t * 4+:4]"], ["W[i+:1]"])


def test_a_reduction_does_not_read_what_it_accumulates() -> None:
    update = Store(W, (i,), W[i] + V[k])
    start = Store(W, (i,), const(0.0))
    assert text(infer_regions(update, start)[0]) == ["V[k+:1]"]
    assert text(infer_regions(update)[0]) == ["W[i+:1]", "V[k+:1]"]
    elsewhere = Store(W, (i,), W[i] + W[i - 1])
    assert text(infer_regions(elsewhere, start)[0]) == ["W[i - 1+:2]"]


def test_an_address_given_away_counts_as_the_whole_buffer() -> None:
    declare("extern.regions_probe", None, "any", lambda _: const(0).dtype, pure=False)
    handed = Evaluate(call("extern.regions_probe", address_of(V[i]), W[i]))
    found = infer_regions(handed)
    assert (text(found[0]), text(found[1])) == (["V[0+:64]", "W[i+:1]"], ["V[0+:64]"])


def test_a_prefetch_writes_nothing() -> None:
    assert infer_regions(Evaluate(call("prefetch", address_of(V[i]))))[1] == ()


# ---- blocks -------------------------------------------------------------------------------------


def test_with_inferred_regions_mends_a_block() -> None:
    vi = Var("vi")
    body = Store(W, (vi,), V[vi])
    bare = Block("copy", (Iter(vi, const(64), "spatial"),), (i,), body)
    mended = with_inferred_regions(bare)
    assert "reads(V[vi])" in stmt_text(mended)
    assert mended.body is body
    assert with_inferred_regions(mended) is mended


def test_whole_region() -> None:
    assert text((whole_region(A),)) == ["A[0+:16, 0+:16]"]


# ---- boxes hold every access --------------------------------------------------------------------


def _index(draw: st.DrawFn, depth: int = 2) -> Expr:
    leaf = st.sampled_from([i, j, k, t, const(1), const(5)])
    if depth == 0 or draw(st.booleans()):
        return draw(leaf)
    a, b = _index(draw, depth - 1), _index(draw, depth - 1)
    c = draw(st.integers(1, 4))
    made = {
        "add": lambda: a + b,
        "sub": lambda: a - b,
        "mul": lambda: a * draw(st.integers(-3, 3)),
        "div": lambda: a // c,
        "mod": lambda: a % c,
        "min": lambda: minimum(a, b),
        "max": lambda: maximum(a, b),
        "select": lambda: select(k > 1, a, b),
    }
    return made[draw(st.sampled_from(sorted(made)))]()


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_every_access_lies_in_its_box(data: st.DataObject) -> None:
    draw: Any = data.draw
    loads = [Load(V, (_index(draw),)) for _ in range(draw(st.integers(1, 2)))]
    total: Expr = const(0.0)
    for load in loads:
        total = total + load
    (region,), _ = infer_regions(loop(k, 3, loop(t, 4, Store(W, (i,), total))))
    (box,) = region.ranges
    for values in itertools.product(range(3), range(3)):
        outer: dict[Var, Any] = dict(zip((i, j), values, strict=True))
        low = int(evaluate(box.start, outer))
        high = low + int(evaluate(box.extent, outer)) - 1
        inner = {k: np.arange(3)[:, None], t: np.arange(4)[None, :]}
        for load in loads:
            seen = evaluate(load.indices[0], {**outer, **inner})
            if (low, high) != (0, 63):
                assert low <= seen.min()
                assert seen.max() <= high


@pytest.mark.parametrize("factor", [1, 2, 5])
def test_an_affine_box_is_no_larger_than_it_must_be(factor: int) -> None:
    (region,), _ = infer_regions(loop(k, 3, Store(W, (i,), V[i * 7 + k * factor])))
    assert int(evaluate(region.ranges[0].extent, {})) == 2 * factor + 1
