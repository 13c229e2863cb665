"""Tiles compute past the edge of intermediate buffers, which grow for it."""

from __future__ import annotations

from typing import Any

import pytest

from tilewright.lower.overcompute import overcompute

TILES = """
def f(A: f32[{n}], B: f32[{n}]):
    T = alloc(f32[{n}])
    for i in range({tiles}):
        for j in unrolled(16):
            with block("T", v=spatial({n}, i * 16 + j)):
                {where}
                {reads}
                writes(T[v])
                T[v] = {value}
    for i in range({n}):
        with block("B", v=spatial({n}, i)):
            reads(T[v], A[v])
            writes(B[v])
            B[v] = T[v] * A[v]
"""


def tiles(n: object = 100, count: object = 7, *, where: bool = True, value: str = "2.0") -> str:
    text = TILES.replace("{where}", f"where(i * 16 + j < {n})" if where else "{drop}")
    text = text.replace("{reads}", "reads(A[v])" if "A" in value else "{drop}")
    lines = [line for line in text.splitlines() if "{drop}" not in line]
    return "\n".join(lines).format(n=n, tiles=count, value=value)


@pytest.mark.parametrize(
    ("n", "count", "size"), [(100, 7, 112), ("n", "(n + 15) // 16", "(n + 15) // 16 * 16")]
)
def test_the_guard_goes_and_the_buffer_grows(
    n: object, count: object, size: object, becomes: Any
) -> None:
    after = tiles(n, count, where=False).replace(f"alloc(f32[{n}])", f"alloc(f32[{size}])")
    becomes(tiles(n, count), overcompute, after)


def test_not_where_a_row_would_reach_into_the_next_one(becomes: Any) -> None:
    text = tiles().replace("T = alloc(f32[100])", "T = alloc(f32[100, strides(1)])")
    becomes(text, overcompute, text)


@pytest.mark.parametrize("kind", ["range", "unrolled", "vectorized"])
def test_not_where_parameters_would_be_read_outside(kind: str, becomes: Any) -> None:
    text = tiles(value="A[v]").replace("unrolled", kind)
    becomes(text, overcompute, text)


@pytest.mark.parametrize("kind", ["range", "unrolled", "vectorized"])
def test_not_where_what_is_read_would_lie_before_its_buffer(kind: str, becomes: Any) -> None:
    text = tiles(value="A[99 - v]").replace("unrolled", kind)
    becomes(text, overcompute, text)
    local = text.replace(
        "    T = alloc(f32[100])", "    S = alloc(f32[100])\n    T = alloc(f32[100])"
    )
    local = local.replace("A[99", "S[99").replace("reads(A[v])", "reads(S[99 - v])")
    becomes(local, overcompute, local)


def test_what_is_read_under_a_condition_of_its_own_may_be_left_to_it(becomes: Any) -> None:
    text = tiles(value="A[99 - v] if v < 100 else 0.0")
    after = text.replace("                where(i * 16 + j < 100)\n", "")
    becomes(text, overcompute, after.replace("alloc(f32[100])", "alloc(f32[112])"))


def test_not_into_parameters(becomes: Any) -> None:
    text = """
    def f(B: f32[100]):
        for i in range(7):
            for j in range(16):
                with block("B", v=spatial(100, i * 16 + j)):
                    where(i * 16 + j < 100)
                    writes(B[v])
                    B[v] = 1.0
    """
    becomes(text, overcompute, text)


def test_what_a_reduction_starts_with_goes_past_the_edge_too(becomes: Any) -> None:
    start = """
    def f(B: f32[100]):
        T = alloc(f32[{size}])
        for i in range(7):
            for j in unrolled(16):
                {guard}T[i * 16 + j] = 0.0
        for i in range(100):
            with block("B", v=spatial(100, i)):
                reads(T[v])
                writes(B[v])
                B[v] = T[v]
    """
    guard = "if i * 16 + j < 100:\n                    "
    before, after = start.format(size=100, guard=guard), start.format(size=112, guard="")
    becomes(before, overcompute, after)


def test_a_guard_that_is_needed_keeps_none_of_the_others(becomes: Any) -> None:
    sums = """
    def f(A: f32[10], B: f32[10, 10]):
        T = alloc(f32[{size}, {size}])
        for i in range(3):
            for j in range(3):
                for ii in range(4):
                    for jj in unrolled(4):
                        with block("T", v=spatial(10, i * 4 + ii), w=spatial(10, j * 4 + jj)):
                            where({where})
                            reads(A[v])
                            writes(T[v, w])
                            T[v, w] = A[v]
        for i in range(10):
            for j in range(10):
                with block("B", v=spatial(10, i), w=spatial(10, j)):
                    reads(T[v, w])
                    writes(B[v, w])
                    B[v, w] = T[v, w]
    """
    row, column = "i * 4 + ii < 10", "j * 4 + jj < 10"
    before = sums.format(size=10, where=f"{row} and {column}")
    becomes(before, overcompute, sums.format(size=12, where=row))


@pytest.mark.parametrize("kind", ["range", "parallel"])
def test_not_where_a_loop_over_tiles_just_ends_sooner(kind: str, becomes: Any) -> None:
    text = """
    def f(B: f32[104]):
        T = alloc(f32[104])
        for i in range(3):
            for j in range(5):
                for k in unrolled(8):
                    with block("T", v=spatial(104, i * 40 + j * 8 + k)):
                        where(i * 5 + j < 13)
                        writes(T[v])
                        T[v] = 2.0
        for i in range(104):
            with block("B", v=spatial(104, i)):
                reads(T[v])
                writes(B[v])
                B[v] = T[v]
    """.replace("j in range", f"j in {kind}")
    becomes(text, overcompute, text)
