"""Pairs of neighbours that threads store are joined to whole sectors."""

from __future__ import annotations

from dataclasses import replace
from textwrap import indent

import numpy as np
import pytest

from tilewright.ir import (
    KEEPS_PAIRS,
    For,
    Function,
    Ramp,
    Stmt,
    Store,
    parse_function,
    verify,
    walk,
)
from tilewright.lower import join_pairs
from tilewright.simt import run

#: A thread's place: rows of 16 elements for four threads each.
PLACE = "t // 4 * 16 + t % 4 * 2"


def function_of(*stores: str) -> Function:
    body = indent("\n".join(stores), " " * 12)
    return parse_function(
        "def f(A: f16[128], R: f16[128], S: f32[128]):\n"
        '    for b in thread(1, "blockIdx.x"):\n'
        f'        for t in thread(32, "threadIdx.x"):\n{body}\n'
    )


def pair(place: str, offset: int, buffer: str = "R", factor: float = 2.0) -> str:
    at = f"ramp({place} + {offset}, 1, 2)"
    return f"{buffer}[{at}] = A[{at}] * broadcast(f16({factor}), 2)"


def widths(stmt: Stmt) -> list[int]:
    """How many elements stores write."""
    stores = [s for s in walk(stmt) if isinstance(s, Store)]
    return [s.indices[0].dtype.lanes if isinstance(s.indices[0], Ramp) else 1 for s in stores]


def executed(function: Function) -> np.ndarray:
    a = np.arange(128, dtype=np.float16)
    result = np.zeros(128, np.float16)
    run(function, [a, result, np.zeros(128, np.float32)])
    return result


def test_two_runs_of_a_row_are_joined() -> None:
    plain = function_of(pair(PLACE, 0), pair(PLACE, 8, factor=3.0))
    joined = join_pairs(plain)
    verify(joined)
    assert widths(joined.body) == [4]
    want = np.arange(128) * np.where(np.arange(128) // 8 % 2, 3.0, 2.0)
    np.testing.assert_array_equal(executed(joined), want.astype(np.float16))
    np.testing.assert_array_equal(executed(plain), executed(joined))


def test_rows_that_take_turns_are_joined_each() -> None:
    """Threads have two rows, whose stores alternate."""
    place = "t // 4 * 16 + t % 4 * 2"
    row = place.replace("* 16", "* 32")
    stores = [
        f"R[ramp({row} + {k}, 1, 2)] = A[ramp({row} + {k}, 1, 2)] * broadcast(f16(2.0), 2)"
        for k in (0, 16, 8, 24)
    ]
    text = "\n".join(indent(s, " " * 12) for s in stores)
    function = parse_function(
        "def f(A: f16[256], R: f16[256]):\n"
        '    for b in thread(1, "blockIdx.x"):\n'
        f'        for t in thread(32, "threadIdx.x"):\n{text}\n'
    )
    joined = join_pairs(function)
    assert widths(joined.body) == [4, 4]
    a, result = np.arange(256, dtype=np.float16), np.zeros(256, np.float16)
    run(joined, [a, result])
    np.testing.assert_array_equal(result, a * np.float16(2))


@pytest.mark.parametrize(
    "stores",
    [
        [pair(PLACE, 0)],
        [pair(PLACE, 0), pair(PLACE, 4)],
        [pair("t * 4", 0), pair("t * 4", 2)],
        [pair("t // 4 * 17 + t % 4 * 2", 0), pair("t // 4 * 17 + t % 4 * 2", 8)],
        [pair(PLACE, 0), "S[t] = 1.0", pair(PLACE, 8)],
        [pair(PLACE, 0).replace("A[", "R["), pair(PLACE, 8).replace("A[", "R[")],
    ],
    ids=["alone", "no run", "not of a row", "not aligned", "something between", "read again"],
)
def test_what_stays(stores: list[str]) -> None:
    function = function_of(*stores)
    assert join_pairs(function) is function or str(join_pairs(function)) == str(function)


def test_a_loop_can_be_left_as_it_is() -> None:
    plain = function_of(pair(PLACE, 0), pair(PLACE, 8))
    body = plain.body
    assert isinstance(body, For)
    kept = plain.with_body(replace(body, annotations={KEEPS_PAIRS: 1}))
    assert widths(join_pairs(kept).body) == [2, 2]
