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


def test_not_where_parameters_would_be_read_outside(becomes: Any) -> None:
    becomes(tiles(value="A[v]"), overcompute, tiles(value="A[v]"))


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
