"""Memory that nobody wrote may be read, but what comes of it must not matter."""

from __future__ import annotations

import pytest

from tests.simt.kernel_text import execute, fails, zeros
from tilewright.support.errors import UserError


@pytest.mark.parametrize("scope", ["shared", "local"])
def test_reads_of_what_nobody_wrote(scope: str) -> None:
    fails(
        "in block (1, 0, 0), thread (5, 0, 0): what is stored to A is unknown: it comes from "
        f"memory that nobody has written (last the element 5 of {scope} S, which block (1, 0, 0), "
        "thread (5, 0, 0) read)",
        f"""
        def k(A: f32[16]):
            for b in thread(2, "blockIdx.x"):
                S = alloc(f32[8], scope="{scope}")
                for t in thread(8, "threadIdx.x"):
                    if b * 8 + t != 13:
                        S[t] = 0.0
                    A[b * 8 + t] = S[t]
        """,
        zeros(16),
    )


def test_workspace_begins_unwritten() -> None:
    fails(
        "nobody has written (last the element 3 of global W",
        """
        def k(A: f32[4]):
            W = alloc(f32[4])
            for b in thread(1, "blockIdx.x"):
                for t in thread(3, "threadIdx.x"):
                    W[t] = 1.0
            for b in thread(1, "blockIdx.x"):
                for t in thread(4, "threadIdx.x"):
                    A[t] = W[t]
        """,
        zeros(4),
    )


def test_memory_is_unwritten_again_in_every_iteration() -> None:
    fails(
        "nobody has written (last the element 0 of shared S",
        """
        def k(A: f32[4]):
            for b in thread(1, "blockIdx.x"):
                for i in range(2):
                    S = alloc(f32[1], scope="shared")
                    if i == 0:
                        S[0] = 1.0
                    A[i] = S[0]
        """,
        zeros(4),
    )


UNKNOWN = """
def k(A: f32[4], N: i64[4]):
    for b in thread(1, "blockIdx.x"):
        S = alloc(i64[4], scope="shared")
        R = alloc(f32[4], scope="shared")
        for t in thread(4, "threadIdx.x"):
            L = alloc(i64[1], scope="local")
            if t > 0:
                S[t] = t
            L[0] = S[t] + 1
            x = let(L[0] * 2)
"""


@pytest.mark.parametrize(
    ("statement", "what"),
    [
        ("if x < 4:\n    A[t] = 1.0", "a condition"),
        ("while x < 4:\n    A[t] = 1.0", "a condition"),
        ("for i in range(x):\n    A[t] = 1.0", "an extent"),
        ("R[x - 4] = 1.0", "where an element lies"),
        ("A[t] = R[x % 4]", "where an element lies"),
        ("A[t] = f32(x) if t < 3 else 0.0", "what is stored to A"),
        ("assert t > 0 and x > 1, 'no'", ""),
        ("assert t == 0 or x > 1, 'no'", ""),
        ("assert x > 1, 'no'", "a condition"),
        ("A[t] = f32(x) if t > 0 else 0.0", ""),
        ("if t > 0:\n    A[t] = f32(x)", ""),
        ("if t > 0:\n    N[x // 2 - 1] = 1", ""),
    ],
)
def test_unknown_values_are_followed_to_where_they_matter(statement: str, what: str) -> None:
    text = UNKNOWN + "            " + statement.replace("\n", "\n            ") + "\n"
    arguments = zeros(4), zeros(4, "i8")
    if what:
        fails(f"thread (0, 0, 0): {what} is unknown", text, *arguments)
    elif "t > 0 and" in statement:
        with pytest.raises(UserError, match="k stopped: no"):
            execute(text, *arguments)
    else:
        execute(text, *arguments)
