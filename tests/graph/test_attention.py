"""Attention and rotary embedding against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.graph.harness import check
from tests.graph.interpreted import check_definition
from tilewright.graph import Builder
from tilewright.support.errors import UserError

RNG = np.random.default_rng(11)
LOOSE: Any = {"rtol": 1e-4, "atol": 1e-5}


def normal(*shape: int, dtype: Any = "f4") -> Any:
    return RNG.standard_normal(shape).astype(dtype)


def qkv(heads: int = 2, shared: int = 2, queries: int = 3, keys: int = 5) -> list[Any]:
    return [normal(2, heads, queries, 4), normal(2, shared, keys, 4), normal(2, shared, keys, 6)]


def test_attention_is_what_it_says() -> None:
    q, k, v = qkv()
    powers = np.exp(q @ k.swapaxes(2, 3) * 0.5)
    expected = powers / powers.sum(-1, keepdims=True) @ v
    check("attention", [q, k, v], expected=expected, symbolic=False, **LOOSE)
    check_definition("attention", [q, k, v], **LOOSE)


@pytest.mark.parametrize(
    "options",
    [
        {"scale": 0.3},
        {"causal": True},
        {"causal": True, "past_length": 2},
        {"softcap": 0.7},
        {"left_window": 1},
        {"left_window": 2, "right_window": 0, "past_length": 1},
        {"scores": "scaled", "softcap": 0.5},
        {"scores": "capped", "softcap": 0.5},
        {"scores": "masked", "causal": True},
        {"scores": "softmax", "causal": True},
    ],
    ids=str,
)
def test_options(options: dict[str, Any]) -> None:
    check_definition("attention", qkv(), **LOOSE, **options)
    check_definition("attention", qkv(heads=6), symbolic=False, **LOOSE, **options)


def test_masks() -> None:
    q, k, v = qkv(heads=4)
    visible = RNG.integers(0, 2, (2, 1, 3, 5)).astype(bool)
    visible[1, 0, 2] = False
    result = check("attention", [q, k, v, visible], symbolic=False, **LOOSE)[0]
    assert not result[1, :, 2].any()
    check_definition("attention", [q, k, v, visible], causal=True, **LOOSE)
    check_definition("attention", [q, k, v, normal(3, 5)], **LOOSE)
    check_definition("attention", [q, k, v, normal(4, 1, 1)], scores="masked", **LOOSE)
    lengths = np.array([3, 5])
    check_definition("attention", [q, k, v, None, lengths], **LOOSE)
    check_definition("attention", [q, k, v, visible, lengths], causal=True, **LOOSE)
    check_definition("attention", [q, k, v, None, np.array([1, 5])], causal=True, **LOOSE)


def test_half() -> None:
    half = [a.astype("f2") for a in qkv()]
    check_definition("attention", half, causal=True, symbolic=False, atol=2e-3)


@pytest.mark.parametrize("interleaved", [False, True])
def test_rotary_embedding(interleaved: bool) -> None:
    x, angles = normal(2, 3, 4, 8), normal(2, 4, 4)
    tables = [np.cos(angles), np.sin(angles)]
    check_definition("rotary_embedding", [x, *tables], interleaved=interleaved)
    rows = normal(9, 2)
    at = RNG.integers(0, 9, (2, 4))
    inputs = [x, np.cos(rows), np.sin(rows), at]
    check_definition("rotary_embedding", inputs, interleaved=interleaved, rotary_dim=4)
    check("rotary_embedding", [x, *tables], interleaved=interleaved, symbolic=False)


def test_what_is_refused() -> None:
    b = Builder()
    q, k = b.input("q", "f32", (1, 3, 4, 8)), b.input("k", "f32", (1, 2, 5, 8))
    with pytest.raises(UserError, match="share heads of keys: 3 is not a multiple of 2"):
        b.attention(q, k, k)
    with pytest.raises(UserError, match="no scores 'all'"):
        b.attention(q, q, q, scores="all")
    with pytest.raises(UserError, match="two for each angle differ: 8 and 6"):
        b.rotary_embedding(q, np.ones((1, 4, 3), "f4"), np.ones((1, 4, 3), "f4"))
