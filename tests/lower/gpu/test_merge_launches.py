"""Loops over small launches become one launch, with barriers of the grid where they meet."""

from __future__ import annotations

from textwrap import dedent, indent

import numpy as np
import pytest

from tilewright.arith import simplify_function
from tilewright.ir import Function, function_text, is_over_blocks, parse_function, verify, walk
from tilewright.lower import merge_launches, place_barriers, single_threaded
from tilewright.simt import run
from tilewright.target import Target

TARGET = Target.of("cuda -arch=sm_90a")
ROOM = 227 << 10


def merged(text: str) -> Function:
    """What the pass makes of a body: `B:` and `B4:` are loops over 2 and 4 blocks, `T:` over 8
    threads; `A`, `C` and `D` are parameters of 64 elements."""
    lines = dedent(text).strip()
    for short, loop in {
        "B:": 'for b in thread(2, "blockIdx.x"):',
        "B4:": 'for b in thread(4, "blockIdx.x"):',
        "T:": 'for t in thread(8, "threadIdx.x"):',
    }.items():
        lines = lines.replace(short, loop)
    body = "\n".join("    " + line for line in lines.splitlines())
    head = "def f(A: f32[64], C: f32[64], D: f32[64], n: i64):\n"
    function = merge_launches(parse_function(head + body + "\n"), TARGET)
    verify(function)
    return simplify_function(function)


def becomes(before: str, after: str) -> None:
    shown = function_text(merged(before)).rstrip()
    assert dedent(shown.partition("):\n")[2]) == dedent(after).strip()


def launches(function: Function) -> int:
    return sum(map(is_over_blocks, walk(function.body)))


def test_launches_that_touch_the_same_memory_wait_for_all_blocks() -> None:
    becomes(
        """
        B4:
            T:
                C[b * 8 + t] = A[b * 8 + t]
        for k in range(3):
            B:
                T:
                    D[b * 8 + t] = C[31 - b * 8 - t]
        """,
        """
        for block_ in thread(4, "blockIdx.x"):
            for t in thread(8, "threadIdx.x"):
                C[block_ * 8 + t] = A[block_ * 8 + t]
            grid_barrier()
            for k in range(3):
                if block_ < 2:
                    for t in thread(8, "threadIdx.x"):
                        D[block_ * 8 + t] = C[31 - block_ * 8 - t]
                grid_barrier()
        """,
    )


def test_launches_that_do_not_meet_need_no_barrier() -> None:
    becomes(
        """
        B:
            T:
                C[b * 8 + t] = A[b * 8 + t]
        for k in range(3):
            B:
                T:
                    D[b * 8 + t + k] = A[b * 8 + t]
        """,
        """
        for block_ in thread(2, "blockIdx.x"):
            for t in thread(8, "threadIdx.x"):
                C[block_ * 8 + t] = A[block_ * 8 + t]
            for k in range(3):
                for t in thread(8, "threadIdx.x"):
                    D[block_ * 8 + k + t] = A[block_ * 8 + t]
                grid_barrier()
        """,
    )


def test_launches_without_a_loop_are_merged_if_they_have_one_block() -> None:
    """Between others a barrier of the grid would take longer than another launch."""
    first, second = "T:\n    C[t] = A[t]\n", "T:\n    D[t] = C[7 - t]\n"

    def pair(blocks: str) -> Function:
        return merged("".join(f"{blocks}\n" + indent(x, "    ") for x in (first, second)))

    assert launches(pair('for b in thread(1, "blockIdx.x"):')) == 1
    assert launches(pair("B:")) == 2


STEPS = """
for t0 in range(n):
    B:
        S = alloc(f32[8], scope="shared")
        T:
            S[t] = A[b * 8 + t]
        T:
            C[t0 * 16 + 16 + b * 8 + t] = C[t0 * 16 + 15 - b * 8 - t] + S[7 - t]
"""


def test_loops_run_inside_and_keep_what_does_not_change_in_shared_memory() -> None:
    becomes(
        STEPS,
        """
        for block_ in thread(2, "blockIdx.x"):
            S = alloc(f32[8], scope="shared")
            for t in thread(8, "threadIdx.x"):
                S[t] = A[block_ * 8 + t]
            for t0 in range(n):
                for t in thread(8, "threadIdx.x"):
                    C[t0 * 16 + block_ * 8 + t + 16] = C[t0 * 16 - block_ * 8 - t + 15] + S[7 - t]
                grid_barrier()
        """,
    )


def test_merged_steps_compute_the_same() -> None:
    function = place_barriers(single_threaded(merged(STEPS)))
    a, c, d = (np.zeros(64, "f4") for _ in range(3))
    a[:], c[:16] = np.arange(64), np.arange(16)
    run(function, [a, c, d, 3])
    wanted = np.arange(16, dtype="f4")
    for step in range(1, 4):
        kept = a[:16].reshape(2, 8)[:, ::-1].reshape(16)
        wanted = wanted[::-1] + kept
        np.testing.assert_array_equal(c[step * 16 :][:16], wanted)


def test_what_a_step_changes_is_copied_again() -> None:
    shown = function_text(
        merged(
            """
            for t0 in range(n):
                B:
                    S = alloc(f32[8], scope="shared")
                    T:
                        S[t] = C[b * 8 + t]
                    T:
                        C[b * 8 + t] = S[7 - t]
            """
        )
    )
    assert shown.index("for t0") < shown.index("S = alloc")


def test_one_block_waits_for_no_other() -> None:
    becomes(
        """
        for t0 in range(n):
            for b in thread(1, "blockIdx.x"):
                T:
                    C[t] = C[7 - t] + A[t]
            B:
                T:
                    D[b * 8 + t] = A[b * 8 + t]
        """,
        """
        for block_ in thread(2, "blockIdx.x"):
            for t0 in range(n):
                if block_ < 1:
                    for t in thread(8, "threadIdx.x"):
                        C[t] = C[7 - t] + A[t]
                for t in thread(8, "threadIdx.x"):
                    D[block_ * 8 + t] = A[block_ * 8 + t]
                grid_barrier()
        """,
    )


@pytest.mark.parametrize(
    "second",
    [
        pytest.param(
            'for b in thread(200, "blockIdx.x"):\n    T:\n        D[t] = C[t]', id="blocks"
        ),
        pytest.param(
            'for b in thread(n, "blockIdx.x"):\n    T:\n        D[t] = C[t]', id="unknown"
        ),
        pytest.param(
            'B:\n    for t in thread(256, "threadIdx.y"):\n        D[t] = C[t]', id="threads"
        ),
        pytest.param(
            f'B:\n    S = alloc(f32[{ROOM // 4}], scope="shared")\n    T:\n        S[t] = C[t]',
            id="shared",
        ),
        pytest.param('B:\n    T:\n        assert t < n, "no"\n        D[t] = C[t]', id="checks"),
        pytest.param("if n > 1:\n    B:\n        T:\n            D[t] = C[t]", id="conditions"),
    ],
)
def test_what_stays_apart(second: str) -> None:
    first = """for k in range(3):
    B:
        S = alloc(f32[8], scope="shared")
        T:
            C[b * 8 + t] = A[b * 8 + t]
"""
    assert launches(merged(first + second)) == 2


def test_results_over_operands_stay_apart() -> None:
    text = """
    def f(A: f32[16], C: f32[16]):
        for b in thread(2, "blockIdx.x"):
            for t in thread(8, "threadIdx.x"):
                C[b * 8 + t] = A[b * 8 + t]
        for k in range(3):
            for b in thread(2, "blockIdx.x"):
                for t in thread(8, "threadIdx.x"):
                    C[b * 8 + t] = C[b * 8 + t] + 1.0
    """
    function = parse_function(dedent(text))
    assert launches(merge_launches(function, TARGET)) == 1
    assert launches(merge_launches(function.with_attrs(in_place=[0]), TARGET)) == 2
