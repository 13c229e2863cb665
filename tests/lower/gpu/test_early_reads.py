"""Reads that need not wait for a barrier come before it."""

from __future__ import annotations

import re
from textwrap import indent

import numpy as np

from tilewright import simt
from tilewright.ir import Function, function_text, parse_function, verify
from tilewright.lower import place_barriers, read_early

T = 'for t in thread(8, "threadIdx.x"):'
PUT = f"{T}\n    S[t] = A[t]\n"


def launched(body: str) -> Function:
    return parse_function(
        "def f(A: f32[8], B: f32[32], K: i32[8], C: f32[32]):\n"
        '    for b in thread(1, "blockIdx.x"):\n'
        '        S = alloc(f32[8], scope="shared")\n' + indent(body, " " * 8)
    )


def order(function: Function) -> str:
    """What is read of B, put into S and written to C, and where threads wait."""
    found = re.findall(r"early\w*\[|barrier|S\[t\] =|C\[", function_text(function))
    return " ".join("read" if f.startswith("early") else f.strip("[ =") for f in found)


def run(function: Function) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    a, b, k = np.arange(8, dtype="f4"), np.arange(32, dtype="f4") ** 2, np.arange(8, dtype="i4") * 3
    c = np.zeros(32, "f4")
    simt.run(function, [a, b, k, c])
    return c


def check(body: str, wanted: str) -> None:
    function = launched(body)
    moved = read_early(function)
    verify(moved)
    # A buffer is named where it is written, and where it is read.
    assert order(place_barriers(moved)) == wanted
    np.testing.assert_array_equal(run(place_barriers(moved)), run(place_barriers(function)))


def test_before_the_barrier() -> None:
    use = f"{T}\n    C[t] = S[7 - t] + B[t]\n"
    check(PUT + use, "read S[t] barrier C read")


def test_of_several_pairs_before_the_phase_before() -> None:
    uses = [f"{T}\n    C[t + {k}] = S[7 - t] + B[t + {k}]\n" for k in (0, 8)]
    check(
        PUT + uses[0] + PUT + uses[1], "read S[t] read barrier C read barrier S[t] barrier C read"
    )


def test_under_their_conditions() -> None:
    use = f"{T}\n    if t < 5:\n        C[t] = S[7 - t] + B[t * 7]\n"
    check(PUT + use, "read S[t] barrier C read")


def test_not_what_is_written() -> None:
    use = f"{T}\n    C[t] = S[7 - t] + C[t + 8]\n"
    check(PUT + use, "S[t] barrier C C")


def test_not_at_places_that_are_read_themselves() -> None:
    use = f"{T}\n    C[t] = S[7 - t] + B[int64(K[t])]\n"
    check(PUT + use, "read S[t] barrier C read")
    assert re.search(r"C\[t\] = .*B\[i64\(early", function_text(read_early(launched(PUT + use))))


def test_not_where_nothing_is_put_into_shared_memory() -> None:
    check(f"{T}\n    C[t] = B[t]\n{T}\n    C[t + 8] = B[t + 8]\n", "C barrier C")


def test_no_more_than_registers_hold() -> None:
    many = " + ".join(f"B[t + {k}]" for k in range(25))
    function = read_early(launched(PUT + f"{T}\n    C[t] = S[7 - t] + {many}\n"))
    assert function_text(function).count("early") == 3 * 24
