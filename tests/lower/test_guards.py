"""Guards of tiles are decided once for the tile."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright.ir import function_text
from tilewright.lower.guards import hoist_guards

TILES = """
def f(A: f32[n, 6], C: f32[n]):
    for io in range((n + 3) // 4):
        for k in range(6):
            for ii in unrolled(4):
                if io * 4 + ii < n:
                    C[io * 4 + ii] = C[io * 4 + ii] + A[io * 4 + ii, k]
"""


def test_whole_tiles_have_no_guards_and_others_come_in_parts(becomes: Any) -> None:
    def tile(rows: int, indent: int, first: str = "") -> str:
        pad = "\n" + " " * indent
        at = f"io * 4 + (ii + {first})" if first else "io * 4 + ii"
        return (
            f"{pad}for k in range(6):{pad}    for ii in unrolled({rows}):"
            f"{pad}        C[{at}] = C[{at}] + A[{at}, k]"
        )

    becomes(
        TILES,
        hoist_guards,
        f"""
        def f(A: f32[n, 6], C: f32[n]):
            for io in range((n + 3) // 4):
                if io * 4 + 3 < n:{tile(4, 20)}
                else:
                    if io * 4 + 1 < n:{tile(2, 24)}
                    if n % 2 >= 1:
                        first_row = let(n // 2 * 2 - io * 4){tile(1, 24, "first_row")}
        """,
    )


def test_of_known_rows_there_is_one_number_that_is_left(becomes: Any) -> None:
    def tile(rows: int) -> str:
        return f"""
                    for k in range(6):
                        for ii in unrolled({rows}):
                            C[io * 4 + ii] = C[io * 4 + ii] + A[io * 4 + ii, k]"""

    becomes(
        TILES.replace("(n + 3) // 4", "3").replace("[n", "[10").replace("< n", "< 10"),
        hoist_guards,
        f"""
        def f(A: f32[10, 6], C: f32[10]):
            for io in range(3):
                if io < 2:{tile(4)}
                else:{tile(2)}
        """,
    )


def test_what_follows_the_sums_of_a_tile_is_in_its_version(keeps_meaning: Any) -> None:
    text = """
    def f(A: f32[n, 6], B: f32[n], C: f32[n]):
        for io in range((n + 3) // 4):
            T = alloc(f32[4], scope="local")
            for ii in unrolled(4):
                T[ii] = 0.0
            for k in range(6):
                for ii in unrolled(4):
                    if io * 4 + ii < n:
                        T[ii] = T[ii] + A[io * 4 + ii, k]
            B[io * 4] = 1.0
            for ij in unrolled(4):
                if io * 4 + ij < n:
                    C[io * 4 + ij] = T[ij]
    """
    for n in (1, 2, 3, 5, 8, 11):
        a = np.arange(6 * n, dtype=np.float32).reshape(n, 6)
        keeps_meaning(text, hoist_guards, a, np.zeros(n, np.float32), np.zeros(n, np.float32))


@pytest.mark.parametrize("after", ["", "D[io] = T[0] + T[3]", "D[io] = D[io] + 1.0"])
def test_parts_of_a_tile_start_anew(keeps_meaning: Any, after: str) -> None:
    """Sums that something else reads, and what must happen once, are not computed by parts."""
    text = f"""
    def f(A: f32[n, 6], C: f32[n], D: f32[m]):
        for io in range((n + 6) // 7):
            T = alloc(f32[7], scope="local")
            for ii in unrolled(7):
                T[ii] = 0.0
            for k in range(6):
                for ii in unrolled(7):
                    if io * 7 + ii < n:
                        T[ii] = T[ii] + A[io * 7 + ii, k]
            {after or "pass"}
            for ij in unrolled(7):
                if io * 7 + ij < n:
                    C[io * 7 + ij] = T[ij]
    """
    for n in range(1, 16):
        a = np.arange(6 * n, dtype=np.float32).reshape(n, 6)
        d = np.zeros((n + 6) // 7, np.float32)
        keeps_meaning(
            text.replace("            pass\n", ""), hoist_guards, a, np.zeros(n, np.float32), d
        )


def test_sums_that_start_from_rows_of_memory(keeps_meaning: Any) -> None:
    text = """
    def f(A: f32[n, 6], E: f32[m], C: f32[n]):
        for io in range((n + 6) // 7):
            T = alloc(f32[7], scope="local")
            for ij in unrolled(7):
                T[ij] = E[io * 7 + ij]
            for k in range(6):
                for ii in unrolled(7):
                    if io * 7 + ii < n:
                        T[ii] = T[ii] + A[io * 7 + ii, k]
            for il in unrolled(7):
                if io * 7 + il < n:
                    C[io * 7 + il] = T[il]
    """
    for n in range(1, 16):
        a = np.arange(6 * n, dtype=np.float32).reshape(n, 6)
        e = np.arange((n + 6) // 7 * 7, dtype=np.float32) ** 2
        keeps_meaning(text, hoist_guards, a, e, np.zeros(n, np.float32))


def test_tiles_that_lie_outside_have_no_rows(keeps_meaning: Any) -> None:
    text = """
    def f(A: f32[n, 6], C: f32[n]):
        for io in range((n + 7) // 8):
            for ib in range(2):
                for k in range(6):
                    for ii in unrolled(4):
                        if io * 8 + ib * 4 + ii < n:
                            C[at] = C[at] + A[at, k]
    """.replace("at", "io * 8 + ib * 4 + ii")
    for n in range(1, 18):
        a = np.arange(6 * n, dtype=np.float32).reshape(n, 6)
        keeps_meaning(text, hoist_guards, a, np.zeros(n, np.float32))


def test_what_has_no_guards_has_one_version(becomes: Any) -> None:
    text = """
    def f(A: f32[n], C: f32[n]):
        for io in range((n + 3) // 4):
            T = alloc(f32[4], scope="local")
            for ii in unrolled(4):
                T[ii] = 2.0
            {rest}
    """
    inner = "for ii in unrolled(4):\n{0}    {guard}C[io * 4 + ii] = T[ii]"
    whole = inner.replace("{guard}", "").replace("{0}", " " * 16)
    slow = inner.replace("{guard}", "if io * 4 + ii < n:\n                        ")
    split = (
        f"if io * 4 + 3 < n:\n                {whole}\n"
        f"            else:\n                {slow.replace('{0}', ' ' * 16)}"
    )
    guarded = inner.replace("{guard}", "if io * 4 + ii < n:\n                    ")
    before = text.replace("{rest}", guarded.replace("{0}", " " * 12))
    becomes(before, hoist_guards, text.replace("{rest}", split))


def test_what_asks_less_of_a_tile_is_decided_by_itself(becomes: Any) -> None:
    text = """
    def f(A: f32[n], B: f32[n], C: f32[n]):
        for io in range((n + 3) // 4):
            {0}
            {1}
    """
    whole = "if io * 4 + {last} < n:\n                for ii in unrolled(4):\n                    "
    slow = "\n            else:\n                for ii in unrolled(4):\n                    "

    def loop(name: str, row: str) -> str:
        return (
            "for ii in unrolled(4):\n                "
            f"if io * 4 + {row} < n:\n                    {name}[io * 4 + ii] = A[io * 4 + ii]"
        )

    def split(name: str, row: str, last: int) -> str:
        store = f"{name}[io * 4 + ii] = A[io * 4 + ii]"
        guard = f"if io * 4 + {row} < n:\n                        "
        return whole.replace("{last}", str(last)) + store + slow + guard + store

    rows = [("B", "ii // 2 * 2", 2), ("C", "ii", 3)]
    before = text.format(*(loop(n, r) for n, r, _ in rows))
    becomes(before, hoist_guards, text.format(*(split(*r) for r in rows)))


def test_meaning(keeps_meaning: Any) -> None:
    for n in (0, 3, 4, 10):
        a = np.arange(6 * n, dtype=np.float32).reshape(n, 6)
        keeps_meaning(TILES, hoist_guards, a, np.ones(n, np.float32))


def test_masks_of_loads_and_two_guards(keeps_meaning: Any) -> None:
    text = """
    def f(A: f32[n, m], B: f32[n, m]):
        for io in range((n + 3) // 4):
            for jo in range((m + 7) // 8):
                for ii in unrolled(4):
                    for ji in vectorized(8):
                        if io * 4 + ii < n and jo * 8 + ji < m:
                            B[io * 4 + ii, jo * 8 + ji] = load(
                                A[io * 4 + ii, jo * 8 + ji - 1], jo * 8 + ji >= 1
                            )
    """
    for n, m in ((4, 8), (5, 9), (1, 23), (9, 16)):
        a = np.arange(n * m, dtype=np.float32).reshape(n, m)
        keeps_meaning(text, hoist_guards, a, np.ones((n, m), np.float32))


WINDOWS = """
def f(A: f32[9, {width}], B: f32[9, {width}]):
    for y in range(9):
        {tiles}:
            for a in unrolled(2):
                for xi in unrolled(4):
                    B[y, {x}] = B[y, {x}] + load(A[y + a - 1, {x} - 1], y + a >= 1 and {x} >= 1)
"""


def test_tiles_at_one_edge_of_an_image_ask_for_nothing_else(keeps_meaning: Any) -> None:
    text = WINDOWS.format(width=12, tiles="for xo in range(3)", x="xo * 4 + xi")
    a = np.arange(9 * 12, dtype=np.float32).reshape(9, 12)
    after = function_text(keeps_meaning(text, hoist_guards, a, np.ones_like(a)))
    inside, edge, corner = [*after.split("if y >= 1")[1:], after.split("else:")[1]]
    assert inside.startswith(" and xo >= 1:") and "load(" not in inside
    assert edge.split("else:")[0].endswith(", xo * 4 + xi >= 1)\n" + " " * 12)
    assert "y + a >= 1 and xo * 4 + xi >= 1" in corner


def test_what_no_tile_meets_hinders_no_other_guard(keeps_meaning: Any) -> None:
    text = WINDOWS.format(width=4, tiles="for n in range(2)", x="xi")
    a = np.arange(9 * 4, dtype=np.float32).reshape(9, 4)
    after = function_text(keeps_meaning(text, hoist_guards, a, np.ones_like(a)))
    fast = after.split("if y >= 1:")[1].split("else:")[0]
    assert "xi >= 1" in fast and "y + a >= 1" not in fast


def test_rows_of_windows_that_lie_outside_are_told_apart(becomes: Any) -> None:
    """There, nothing is loaded, and nothing asks for an edge."""
    text = """
    def f(A: f32[9, 4], B: f32[9, 4]):
        for y in range(9):
            for a in range(3):
                {0}
    """
    rows = "for xi in unrolled(4):\n{0}    B[y, xi] = B[y, xi] + {1}"
    masked = "load(A[y + a - 1, xi], y + a >= 1 and y + a <= 9)"
    deep = " " * 20
    split = (
        f"if a + y >= 1 and a + y < 10:\n{deep}{rows.format(deep, 'A[y + a - 1, xi]')}\n"
        f"                else:\n{deep}{rows.format(deep, '0.0')}"
    )
    before = text.format(rows.format(" " * 16, masked))
    becomes(before, hoist_guards, text.format(split))


def test_what_is_chosen_outside_of_an_image_is_known_there(keeps_meaning: Any) -> None:
    text = """
    def f(A: f32[9, 4], B: f32[9, 4]):
        for y in range(9):
            for a in range(3):
                for xi in unrolled(4):
                    B[y, xi] = max(B[y, xi], A[y + a - 1, xi] if y + a >= 1 and y + a < 10 else 7.0)
    """
    after = keeps_meaning(
        text.replace("A[y + a - 1, xi] if", "load(A[y + a - 1, xi], y + a >= 1 and y + a < 10) if"),
        hoist_guards,
        np.arange(36, dtype=np.float32).reshape(9, 4) - 20,
        np.full((9, 4), -50, np.float32),
    )
    assert "max(B[y, xi], 7.0)" in function_text(after)


def test_a_guard_on_memory_stays(becomes: Any) -> None:
    text = """
    def f(M: i64[n], C: f32[4 * n]):
        for i in range(n):
            for j in unrolled(4):
                if M[i] < j:
                    C[i * 4 + j] = 1.0
    """
    becomes(text, hoist_guards, text)


def test_what_follows_sums_is_there_twice_whatever_the_number_of_rows(keeps_meaning: Any) -> None:
    """An activation in all the versions of a tile would be most of a kernel's code."""
    text = """
    def f(A: f32[n, 6], C: f32[2, n]):
        for io in range((n + 6) // 7):
            T = alloc(f32[2, 7], scope="local")
            for o in unrolled(2):
                for ii in unrolled(7):
                    T[o, ii] = 0.0
            for k in range(6):
                for o in unrolled(2):
                    for ii in unrolled(7):
                        if io * 7 + ii < n:
                            T[o, ii] = T[o, ii] + A[io * 7 + ii, k]
            for o in range(2):
                for ij in unrolled(7):
                    if io * 7 + ij < n:
                        C[o, io * 7 + ij] = exp(T[o, ij])
            C[0, 0] = T[0, 0]
    """
    for n in range(1, 16):
        a = np.arange(6 * n, dtype=np.float32).reshape(n, 6) / 90
        after = function_text(keeps_meaning(text, hoist_guards, a, np.zeros((2, n), np.float32)))
        assert after.count("exp(") == 2
        assert after.count("for k in range(6)") == 7


def test_what_an_iteration_keeps_for_itself_is_no_sum_of_rows(keeps_meaning: Any) -> None:
    """Tiles of an image have a version that is whole, and those at its edges one each."""
    text = """
    def f(A: f32[4 * n + 4, 8], C: f32[n, 8]):
        for y in range((n + 3) // 4):
            for v in range(2):
                T = alloc(f32[4, 4], scope="local")
                for i in unrolled(4):
                    for l in vectorized(4):
                        T[i, l] = A[y * 4 + i, v * 4 + l] + A[y * 4 + i + 1, v * 4 + l]
                for i in unrolled(4):
                    for l in vectorized(4):
                        if y * 4 + i < n:
                            C[y * 4 + i, v * 4 + l] = exp(T[i, l])
    """
    for n in (1, 2, 4, 7, 8):
        a = np.arange(8 * (4 * n + 4), dtype=np.float32).reshape(-1, 8) / 900
        after = function_text(keeps_meaning(text, hoist_guards, a, np.zeros((n, 8), np.float32)))
        assert after.count("exp(") == 2


def test_rows_that_follow_in_smaller_tiles_leave_the_sums_their_versions(
    keeps_meaning: Any,
) -> None:
    """What is long is computed a few rows at a time: these wait for their own loop, sums do not."""
    text = """
    def f(A: f32[n, 6], C: f32[n, 4]):
        for io in range((n + 3) // 4):
            T = alloc(f32[4, 4], scope="local")
            for ii in unrolled(4):
                for l in vectorized(4):
                    if io * 4 + ii < n:
                        T[ii, l] = 0.0
            for k in range(6):
                for ii in unrolled(4):
                    for l in vectorized(4):
                        if io * 4 + ii < n:
                            T[ii, l] = T[ii, l] + A[io * 4 + ii, k]
            for io2 in range(2):
                for ij in unrolled(2):
                    for l in vectorized(4):
                        if io * 4 + io2 * 2 + ij < n:
                            C[io * 4 + io2 * 2 + ij, l] = exp(T[io2 * 2 + ij, l])
    """
    for n in (1, 2, 4, 7, 8):
        a = np.arange(6 * n, dtype=np.float32).reshape(n, 6) / 90
        after = function_text(keeps_meaning(text, hoist_guards, a, np.zeros((n, 4), np.float32)))
        sums = after.split("for k in range(6)")[1:]
        assert len(sums) == 4
        assert all("if " not in s.split("T[")[0] for s in sums)


def test_what_iterations_do_beside_guards_is_there_once(keeps_meaning: Any) -> None:
    """Transforms of tiles are long: they are not repeated for the few stores at an edge."""
    text = """
    def f(A: f32[4 * n + 16, 8], C: f32[n, 8]):
        for y in range((n + 3) // 4):
            for v in range(2):
                T = alloc(f32[16, 4], scope="local")
                for i in unrolled(16):
                    for l in vectorized(4):
                        T[i, l] = sqrt(A[y * 4 + i, v * 4 + l])
                for i in unrolled(4):
                    for l in vectorized(4):
                        if y * 4 + i < n:
                            C[y * 4 + i, v * 4 + l] = exp(T[i, l])
    """
    for n in (1, 4, 7):
        a = np.arange(8 * (4 * n + 16), dtype=np.float32).reshape(-1, 8) / 900
        after = function_text(keeps_meaning(text, hoist_guards, a, np.zeros((n, 8), np.float32)))
        assert (after.count("sqrt("), after.count("exp(")) == (1, 2)


def test_sums_that_are_copied_out_of_registers_come_in_parts_where_there_are_many_rows(
    keeps_meaning: Any,
) -> None:
    text = """
    def f(A: f32[n, m, 6], C: f32[n * m]):
        for io in range((n * m + 6) // 7):
            T = alloc(f32[7], scope="local")
            for ii in unrolled(7):
                T[ii] = 0.0
            for k in range(6):
                for ii in unrolled(7):
                    if io * 7 + ii < n * m:
                        T[ii] = T[ii] + A[(io * 7 + ii) // m, (io * 7 + ii) % m, k]
            S = alloc(f32[7])
            for ij in unrolled(7):
                S[ij] = T[ij]
            for ij in unrolled(7):
                if io * 7 + ij < n * m:
                    C[io * 7 + ij] = exp(S[ij])
    """
    for m in range(1, 16):
        a = np.arange(6 * m, dtype=np.float32).reshape(1, m, 6) / 90
        after = function_text(keeps_meaning(text, hoist_guards, a, np.zeros(m, np.float32)))
        assert after.count("exp(") == 2
        assert after.count("for k in range(6)") == 4
