"""Small formats become arithmetic that any target can do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright.ir import (
    Call,
    Cast,
    DType,
    Function,
    all_exprs,
    parse_function,
)
from tilewright.lower import native_formats
from tilewright.lower.narrow import legalize_types
from tilewright.target import Target

PLAIN = Target.of("llvm -mtriple=x86_64-unknown-linux-gnu -mcpu=x86-64")
WITH_HALF = Target.of("llvm -mtriple=x86_64-unknown-linux-gnu -mcpu=x86-64-v3")
WITH_BOTH = Target.of("llvm -mtriple=aarch64-unknown-linux-gnu -mcpu=neoverse-v1")
TARGETS = [PLAIN, WITH_HALF, WITH_BOTH]
SMALL = "f16 bf16 f8e4m3fn f8e4m3fnuz f8e5m2 f8e5m2fnuz f8e8m0fnu f4e2m1fn i4 u4 i2 u2".split()


def legalized(target: Target) -> Any:
    return lambda function: legalize_types(function, native_formats(target))


def left(function: Function) -> set[str]:
    """The small formats that are left in expressions, and what has them."""
    small = {DType.of(n) for n in SMALL}
    nodes = [e for e in all_exprs(function.body) if e.dtype.scalar in small]
    return {f"{type(e).__name__} {e.dtype.scalar}" for e in nodes}


def values_of(name: str) -> np.ndarray:
    dtype = DType.of(name)
    codes = np.arange(1 << min(dtype.bits, 16), dtype=f"u{dtype.itemsize}")
    return codes[:: max(1, len(codes) // 127)].view(dtype.numpy)


def test_text(becomes: Any) -> None:
    becomes(
        """
        def f(A: bf16[8], B: bf16[8]):
            for i in range(8):
                B[i] = A[i] if i < 4 else -A[7 - i]
        """,
        legalized(PLAIN),
        """
        def f(A: u16[8], B: u16[8]):
            for i in range(8):
                B[i] = A[i] if i < 4 else u16(reinterpret_u32(-reinterpret_f32(u32(A[7 - i]) << \
u32(16))) >> u32(16) | u32(64) if isnan(-reinterpret_f32(u32(A[7 - i]) << u32(16))) else \
reinterpret_u32(-reinterpret_f32(u32(A[7 - i]) << u32(16))) + u32(32767) + (reinterpret_u32(\
-reinterpret_f32(u32(A[7 - i]) << u32(16))) >> u32(16) & u32(1)) >> u32(16))
        """,
    )


def test_functions_without_them_stay() -> None:
    function = parse_function("""
def f(A: f32[n], B: bool[n]):
    for i in range(n):
        B[i] = A[i] > 0.0
""")
    assert legalize_types(function, native_formats(PLAIN)) is function


@pytest.mark.parametrize("target", TARGETS, ids=["plain", "half", "half and bfloat"])
@pytest.mark.parametrize("name", SMALL)
def test_conversions(name: str, target: Target, keeps_meaning: Any) -> None:
    """Through float32 and float64 and whole numbers, and back."""
    text = f"""
    def f(A: {name}[n], B: {name}[n], C: f32[n], D: i32[n], E: f64[n], F: {name}[n]):
        for i in range(n):
            C[i] = f32(A[i])
            D[i] = i32(A[i])
            B[i] = {name}(C[i] * f32(1.3))
            F[i] = {name}(E[i])
            E[i] = f64(B[i])
    """
    a = values_of(name)
    n = len(a)
    rng = np.random.default_rng(n)
    e = np.ldexp(rng.integers(-64, 64, n) / 8.0, rng.integers(-20, 12, n))
    empty = [np.zeros_like(a), np.zeros(n, np.float32), np.zeros(n, np.int32)]
    result = keeps_meaning(text, legalized(target), a, *empty, e, np.zeros_like(a))
    native = {"f16"} if target is not PLAIN else set[str]()
    native |= {"bf16"} if target is WITH_BOTH else set()
    assert left(result) <= {f"{kind} {n}" for n in native for kind in ("Cast", "Call")}


@pytest.mark.parametrize("target", TARGETS, ids=["plain", "half", "half and bfloat"])
@pytest.mark.parametrize("name", ["f16", "bf16"])
def test_arithmetic(name: str, target: Target, keeps_meaning: Any) -> None:
    text = f"""
    def f(A: {name}[n], B: {name}[n], C: {name}[n], D: bool[n], s: {name}):
        T = alloc({name}[1])
        for i in range(n):
            x = let(A[i] * B[i] + s)
            T[0] = x - A[i] / {name}(3.0)
            C[i] = max(min(fma(x, B[i], T[0]), abs(A[i])), -B[i])
            D[i] = x < T[0] or isnan(C[i])
    """
    a = values_of(name)
    b = np.random.default_rng(0).permutation(a)
    c, d = np.zeros_like(a), np.zeros(len(a), bool)
    keeps_meaning(text, legalized(target), a, b, c, d, a.dtype.type(1.5))


def test_reinterpretation_is_free(becomes: Any) -> None:
    becomes(
        """
        def f(A: f16[8], B: u16[8], C: i16[8]):
            for i in range(8):
                B[i] = reinterpret_u16(A[i]) + u16(1)
                C[i] = reinterpret_i16(A[i])
                A[i] = reinterpret_f16(B[i])
        """,
        legalized(PLAIN),
        """
        def f(A: u16[8], B: u16[8], C: i16[8]):
            for i in range(8):
                B[i] = A[i] + u16(1)
                C[i] = reinterpret_i16(A[i])
                A[i] = B[i]
        """,
    )


def test_instructions_of_a_target_keep_their_types() -> None:
    from tilewright.ir import Broadcast, Buffer, For, Ramp, Store, Var, const, declare

    f32x4 = DType.of("f32x4")
    declare("llvm.aarch64.neon.bfdot.v4f32.v8bf16", 3, "any", lambda _: f32x4)
    a, c = Buffer("A", "bf16", (64,)), Buffer("C", "f32", (4,))
    i = Var("i")
    row = a[Ramp(i * 8, const(1), 8)]
    dot = Call("llvm.aarch64.neon.bfdot.v4f32.v8bf16", (Broadcast(const(0.0), 4), row, row), f32x4)
    loop = For(i, const(8), "serial", Store(c, (Ramp(const(0), const(1), 4),), dot))
    result = legalize_types(Function("f", (a, c), loop), native_formats(WITH_BOTH))
    (called,) = (e for e in all_exprs(result.body) if isinstance(e, Call) and "bfdot" in e.name)
    assert [str(x.dtype) for x in called.args] == ["f32x4", "bf16x8", "bf16x8"]
    assert not any(isinstance(e, Cast) for e in all_exprs(result.body))
