"""Loops ask for what they read later, where their notes say so."""

from __future__ import annotations

from typing import Any

import numpy as np

import tilewright as tw
from tilewright import te
from tilewright.ir import Function
from tilewright.lower.prefetch import place_prefetches
from tilewright.target import Target

TARGET = Target.of("llvm -mtriple=x86_64-linux-gnu -mcpu=skylake-avx512")

SUMS = """
    def f(A: f32[512], B: f32[2048], n: i64, C: f32[4]):
        sums = alloc(f32[4], scope="local")
        for k in range(64, note={"prefetch": 4}):
            sums[ramp(0, 1, 4)] = A[ramp(k * 8 + 4, 1, 4)] * B[ramp(n + k * 32, 1, 4)]
            sums[ramp(0, 1, 4)] = sums[ramp(0, 1, 4)] + B[ramp(n + k * 32 + 16, 1, 4)]
            C[ramp(0, 1, 4)] = sums[ramp(0, 1, 4)] + A[ramp(k * 8, 1, 4)] + C[ramp(0, 1, 4)]
    """


def placed(function: Function) -> Function:
    return place_prefetches(function, TARGET)


def test_every_line_that_is_read_later_is_asked_for_once(becomes: Any) -> None:
    """Neighbours share a request; a step of two lines makes two; what stays is not asked for."""
    becomes(
        SUMS,
        placed,
        """
        def f(A: f32[512], B: f32[2048], n: i64, C: f32[4]):
            sums = alloc(f32[4], scope="local")
            for k in range(64):
                prefetch(address_of(A[k * 8 + 32]))
                prefetch(address_of(B[k * 32 + n + 128]))
                prefetch(address_of(B[k * 32 + n + 144]))
                sums[ramp(0, 1, 4)] = A[ramp(k * 8 + 4, 1, 4)] * B[ramp(n + k * 32, 1, 4)]
                sums[ramp(0, 1, 4)] = sums[ramp(0, 1, 4)] + B[ramp(n + k * 32 + 16, 1, 4)]
                C[ramp(0, 1, 4)] = sums[ramp(0, 1, 4)] + A[ramp(k * 8, 1, 4)] + C[ramp(0, 1, 4)]
        """,
    )


def test_what_moves_on_slowly_is_left_to_the_hardware(becomes: Any) -> None:
    becomes(
        """
        def f(A: f32[512], C: f32[1]):
            for k in range(64, note={"prefetch": 4}):
                C[0] = C[0] + A[k]
        """,
        placed,
        """
        def f(A: f32[512], C: f32[1]):
            for k in range(64):
                C[0] = C[0] + A[k]
        """,
    )


def test_rows_that_are_read_side_by_side_are_asked_for_each(becomes: Any) -> None:
    """Where an iteration reads whole lines of them."""
    becomes(
        """
        def f(A: f32[1024], C: f32[256]):
            for j in range(16, note={"prefetch": 2}):
                C[ramp(j * 16, 1, 16)] = A[ramp(j * 16, 1, 16)] + A[ramp(j * 16 + 256, 1, 16)]
        """,
        placed,
        """
        def f(A: f32[1024], C: f32[256]):
            for j in range(16):
                prefetch(address_of(A[j * 16 + 32]))
                prefetch(address_of(A[j * 16 + 288]))
                C[ramp(j * 16, 1, 16)] = A[ramp(j * 16, 1, 16)] + A[ramp(j * 16 + 256, 1, 16)]
        """,
    )


def test_rows_that_lie_apart_are_asked_for_as_far_as_they_are_read(becomes: Any) -> None:
    becomes(
        """
        def f(A: f32[65536], C: f32[1536]):
            for k in range(64, note={"prefetch": 8}):
                C[ramp(k * 24, 1, 16)] = A[ramp(k * 1024, 1, 16)]
                C[ramp(k * 24 + 16, 1, 8)] = A[ramp(k * 1024 + 16, 1, 8)]
        """,
        placed,
        """
        def f(A: f32[65536], C: f32[1536]):
            for k in range(64):
                prefetch(address_of(A[k * 1024 + 8192]))
                prefetch(address_of(A[k * 1024 + 8208]))
                C[ramp(k * 24, 1, 16)] = A[ramp(k * 1024, 1, 16)]
                C[ramp(k * 24 + 16, 1, 8)] = A[ramp(k * 1024 + 16, 1, 8)]
        """,
    )


def test_requests_past_the_end_do_no_harm(keeps_meaning: Any) -> None:
    a, b = np.arange(512, dtype=np.float32), np.arange(2048, dtype=np.float32)
    keeps_meaning(SUMS, placed, a, b, np.int64(0), np.zeros(4, np.float32))


def product(depth: int) -> tw.Module:
    a, b = te.placeholder((256, depth), name="a"), te.placeholder((depth, 3072), name="b")
    k = te.reduce_axis(depth, name="k")
    c = te.compute((256, 3072), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="c")
    return tw.build(te.function([a, b], [c], name="product"), TARGET)


def test_products_ask_for_operands_that_outgrow_the_first_cache() -> None:
    assert "prefetcht0" in product(768).asm
    assert "address_of(b_global" in str(product(768).ir("lowered"))
    assert "address_of(b_global" not in str(product(32).ir("lowered"))


def test_what_loops_inside_read_is_theirs_to_ask_for(becomes: Any) -> None:
    becomes(
        """
        def f(A: f32[2048], C: f32[16]):
            for k in range(4, note={"prefetch": 1}):
                for j in range(32):
                    C[ramp(0, 1, 16)] = C[ramp(0, 1, 16)] + A[ramp(k * 512 + j * 16, 1, 16)]
        """,
        placed,
        """
        def f(A: f32[2048], C: f32[16]):
            for k in range(4):
                for j in range(32):
                    C[ramp(0, 1, 16)] = C[ramp(0, 1, 16)] + A[ramp(k * 512 + j * 16, 1, 16)]
        """,
    )


def test_images_beyond_the_caches_are_summed_up_as_a_whole() -> None:
    """The innermost loop over vectors asks for what comes later."""
    x = te.placeholder((9, 56, 56, 16), "float32", name="X")
    axes = [te.reduce_axis(n) for n in (9, 56, 56, 16)]
    y = te.compute((1,), lambda _: te.max(x[tuple(axes)], axis=axes), name="Y")
    built = tw.build(te.function([x], [y], name="f"), TARGET)
    loops = [line for line in str(built.ir("scheduled")).splitlines() if '"prefetch"' in line]
    assert len(loops) == 1 and "in range(56" in loops[0]
    assert "prefetch" in built.asm
