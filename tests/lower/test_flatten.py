"""Accesses get one index."""

from __future__ import annotations

import pytest

from tilewright.ir import Load, Store, parse_function, walk
from tilewright.lower.flatten import flatten


@pytest.mark.parametrize(
    ("kind", "indices", "position"),
    [
        ("f32[3, 4, 5]", "i, 2, 3", "i * 20 + 13"),
        ("f32[n, m]", "i, 1", "i * m + 1"),
        ("f32[4, 8, strides(10, 1), offset(2)]", "i, ramp(0, 1, 8)", "ramp(i * 10 + 2, 1, 8)"),
        ("f32[8, 4]", "ramp(0, 1, 8), i", "ramp(i, 4, 8)"),
        ("f32[9, n]", "i32(2), i", "n * 2 + i"),
        ("f32[()]", "()", "0"),
    ],
)
def test_positions(kind: str, indices: str, position: str) -> None:
    lanes = 8 if "ramp" in indices else 1
    value = f"broadcast(1.0, {lanes})" if lanes > 1 else "1.0"
    text = f"""
def f(A: {kind}, N: f32[n, m]):
    for i in range(3):
        A[{indices}] = {value}
"""
    (store,) = (s for s in walk(flatten(parse_function(text)).body) if isinstance(s, Store))
    assert [str(i) for i in store.indices] == [position]


def test_fused_dimensions_of_unknown_size_are_walked_through() -> None:
    text = """
def f(A: f32[3, h, w]):
    for k in range(h * w * 3):
        A[k // (h * w), k // w % h, k % w] = 1.0
"""
    (store,) = (s for s in walk(flatten(parse_function(text)).body) if isinstance(s, Store))
    assert [str(i) for i in store.indices] == ["k"]


def test_masks_of_loads_stay_where_a_condition_says_the_same() -> None:
    """Vectorized, the condition becomes the mask of the store alone."""
    text = """
def f(A: f32[h, w], B: f32[n]):
    for k in range(h * w):
        if k < n:
            A[k // w, k % w] = load(B[k], k < n)
"""
    (store,) = (s for s in walk(flatten(parse_function(text)).body) if isinstance(s, Store))
    assert isinstance(store.value, Load)
    assert str(store.value.mask) == "k < n"
