"""While a loop uses a panel, the next one is asked for, as far as its schedule says so."""

from __future__ import annotations

from typing import Any

import numpy as np

import tilewright as tw
from tilewright import te
from tilewright.ir import Function
from tilewright.lower.prefetch import prefetch_next
from tilewright.target import Target

TARGET = Target.of("llvm -mtriple=x86_64-linux-gnu -mcpu=skylake-avx512")

SUMS = """
    def f(A: f32[24], B: f32[1024], C: f32[8]):
        for j in range(4, note={"prefetch_next": 1}):
            for i in range(3):
                for k in range(8):
                    C[0] = C[0] + A[i * 8 + k]
                    C[ramp(0, 1, 8)] = C[ramp(0, 1, 8)] + B[ramp(j * 128 + k * 16, 1, 8)]
                    C[ramp(0, 1, 8)] = C[ramp(0, 1, 8)] + B[ramp(j * 128 + k * 16 + 8, 1, 8)]
    """


def placed(function: Function) -> Function:
    return prefetch_next(function, TARGET)


def test_every_iteration_asks_for_its_part_of_the_next_panel(becomes: Any) -> None:
    """128 elements over 24 iterations: 6 each. What rows use again is not asked for."""
    becomes(
        SUMS,
        placed,
        """
        def f(A: f32[24], B: f32[1024], C: f32[8]):
            for j in range(4):
                for i in range(3):
                    for k in range(8):
                        prefetch(address_of(B[j * 128 + i * 48 + k * 6 + 128]))
                        C[0] = C[0] + A[i * 8 + k]
                        C[ramp(0, 1, 8)] = C[ramp(0, 1, 8)] + B[ramp(j * 128 + k * 16, 1, 8)]
                        C[ramp(0, 1, 8)] = C[ramp(0, 1, 8)] + B[ramp(j * 128 + k * 16 + 8, 1, 8)]
        """,
    )


def unchanged(becomes: Any, inner: str) -> None:
    text = """
        def f(n: i64, B: f32[65536], C: f32[1], D: f32[64]):
            for j in range(4{note}):
                {inner}
        """
    note = ', note={"prefetch_next": 1}'
    before, after = (text.replace("{inner}", inner).replace("{note}", n) for n in (note, ""))
    becomes(before, placed, after)


def test_panels_with_gaps_are_left_alone(becomes: Any) -> None:
    unchanged(
        becomes,
        """for i in range(3):
                    for k in range(8):
                        C[0] = C[0] + B[j * 256 + k * 32]""",
    )


def test_panels_that_very_many_rows_use_are_left_alone(becomes: Any) -> None:
    unchanged(
        becomes,
        """for i in range(3000):
                    for k in range(8):
                        C[0] = C[0] + B[j * 8 + k]""",
    )


def test_panels_of_one_row_are_read_too_fast_to_be_asked_for(becomes: Any) -> None:
    unchanged(
        becomes,
        """for k in range(8):
                    D[ramp(0, 1, 64)] = D[ramp(0, 1, 64)] + B[ramp(j * 512 + k * 64, 1, 64)]""",
    )


def test_rows_of_unknown_number_share_a_panel(becomes: Any) -> None:
    text = """
        def f(n: i64, B: f32[65536], C: f32[1]):
            for j in range(4{}):
                for i in range(n):
                    for k in range(8):{}
                        C[0] = C[0] + B[j * 8 + k]
        """
    index = "i * (1 // n) * 8 + k * (1 // n) + j * 8 + 8"
    asked = f"\n                        prefetch(address_of(B[{index}]))"
    becomes(text.format(', note={"prefetch_next": 1}', ""), placed, text.format("", asked))


def test_products_of_any_number_of_rows_are_right() -> None:
    a, b = te.placeholder((te.var("n"), 96), name="a"), te.placeholder((96, 1024), name="b")
    k = te.reduce_axis(96, name="k")
    c = te.compute((a.shape[0], 1024), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="c")
    module, rng = tw.build(te.function([a, b], [c], name="product")), np.random.default_rng(0)
    assert "prefetch(" in str(module.ir("lowered"))
    for rows in (1, 6, 7, 8, 100):
        left, right = (rng.standard_normal(s, np.float32) for s in ((rows, 96), (96, 1024)))
        made = np.empty((rows, 1024), np.float32)
        module(left, right, made)
        np.testing.assert_allclose(made, left @ right, rtol=1e-4, atol=1e-4)


def test_requests_past_the_end_do_no_harm(keeps_meaning: Any) -> None:
    a, b = np.arange(24, dtype=np.float32), np.arange(1024, dtype=np.float32)
    keeps_meaning(SUMS, placed, a, b, np.zeros(8, np.float32))


def lowered(rows: int, depth: int) -> str:
    a, b = te.placeholder((rows, depth), name="a"), te.placeholder((depth, 1536), name="b")
    k = te.reduce_axis(depth, name="k")
    c = te.compute((rows, 1536), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="c")
    return str(tw.build(te.function([a, b], [c], name="product"), TARGET).ir("lowered"))


def test_products_ask_for_the_next_columns_while_rows_use_some() -> None:
    assert "prefetch(address_of(b_global[" in lowered(200, 768)


def test_operands_that_stay_near_are_not_asked_for() -> None:
    assert "address_of(b_global" not in lowered(200, 32)
