"""Copies run ahead of loops: how far, from where on, and what they may not pass."""

from __future__ import annotations

import re
from textwrap import indent

import pytest

from tilewright.arith import simplify_function
from tilewright.ir import function_text, parse_function, verify
from tilewright.lower import stage_copies

T = 'for t in thread(8, "threadIdx.x"):'


def loop(name: str, source: str, count: int, stages: int) -> str:
    """A loop that copies eight elements in each iteration, and adds them up."""
    return f"""\
for {name} in range({count}, note={{"stages": {stages}}}):
    {name}_S = alloc(f32[8], scope="shared")
    {T}
        {name}_S[t] = {source}[{name} * 8 + t]
    {T}
        R[t] = R[t] + {name}_S[7 - t]
"""


def staged(body: str) -> str:
    """What the pass makes of a launch: the statements by what they are for."""
    function = parse_function(
        "def f(A: f32[64], B: f32[64], C: f32[8]):\n"
        '    for b in thread(1, "blockIdx.x"):\n'
        '        R = alloc(f32[8], scope="shared")\n'
        '        Q = alloc(f32[8], scope="shared")\n' + indent(body, " " * 8)
    )
    result = simplify_function(stage_copies(function))
    verify(result)
    calls = r"async_copy\(address_of\((\w+).*?address_of\((\w+)\[|async_(commit|wait\(\d\))"
    found = re.finditer(rf"{calls}|(barrier)|(for \w+ in range)|(R\[t\] =)", function_text(result))
    return " ".join("".join(g for g in m.groups() if g) for m in found)


USE = "R[t] ="
FILL = f"{T}\n    R[t] = 0.0\n"


def test_a_loop_of_more_iterations_than_stages() -> None:
    copy = "k_SA"
    assert staged(FILL + loop("k", "A", 8, 3)) == (
        f"{copy} commit {copy} commit {USE} for k in range wait(1) barrier {copy} commit {USE}"
    )


@pytest.mark.parametrize(
    "source",
    [
        "(A[k * 8 + t] if t < 5 else 0.0)",
        "((A[k * 8 + t] if t < 5 else 0.0) if k < 7 else 0.0)",  # padded twice
    ],
)
def test_copies_with_padding(source: str) -> None:
    body = loop("k", "A", 8, 3).replace("A[k * 8 + t]", source)
    assert staged(FILL + body).startswith("k_SA commit")


def test_of_few_iterations_all_copies_come_first() -> None:
    assert staged(FILL + loop("k", "A", 2, 3)) == (
        f"k_SA commit k_SA commit {USE} for k in range wait(1) barrier commit {USE}"
    )
    assert staged(FILL + loop("k", "A", 1, 3)) == f"k_SA commit {USE} wait(0) barrier commit {USE}"


def test_first_copies_wait_for_the_loop_before() -> None:
    text = staged(FILL + loop("k", "A", 1, 3) + FILL + loop("m", "B", 1, 3))
    assert text == (
        f"k_SA commit {USE} wait(0) barrier commit {USE}"
        f" m_SB commit {USE} wait(0) barrier commit {USE}"
    )


def test_copies_right_before_a_loop_join_its_first_ones() -> None:
    before = f"{T}\n    Q[t] = C[t]\n"
    use = loop("k", "A", 2, 3).replace("k_S[7 - t]", "k_S[7 - t] * Q[7 - t]")
    assert staged(FILL + before + use).startswith(f"QC k_SA commit k_SA commit {USE} for")


def test_copies_do_not_pass_what_they_copy() -> None:
    body = f"{T}\n    A[t] = 1.0\n" + loop("k", "A", 2, 3)
    function = parse_function(
        "def f(A: f32[64]):\n"
        '    for b in thread(1, "blockIdx.x"):\n'
        '        R = alloc(f32[8], scope="shared")\n' + indent(body, " " * 8)
    )
    shown = function_text(stage_copies(function))
    assert shown.index("A[t] = 1.0") < shown.index("async_copy")


def test_memory_that_was_touched_before_is_not_copied_to_ahead() -> None:
    used = f"{T}\n    R[t] = Q[t]\n{T}\n    Q[t] = C[t]\n"
    use = loop("k", "A", 2, 3).replace("k_S[7 - t]", "k_S[7 - t] * Q[7 - t]")
    assert "QC" not in staged(used + use)
