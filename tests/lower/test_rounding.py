"""Rounding to whole numbers without an instruction for it."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.arith import simplify_function
from tilewright.ir import Call, all_exprs, interpret, parse_function
from tilewright.lower.rounding import expand_rounding
from tilewright.target import Target


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ["round", "trunc", "floor", "ceil"])
def test_values(name: str, dtype: str) -> None:
    text = f"""
def f(A: {dtype}[n], B: {dtype}[n]):
    for i in range(n):
        B[i] = {name}(A[i])
"""
    limit = 2.0 ** np.finfo(dtype).nmant
    near = [0.0, 0.3, 0.5, 0.7, 1.0, 1.5, 2.5, 3.5, 99.99, limit - 0.5, limit, limit + 1, 1e30]
    a = np.array([s * v for v in (*near, 1e-40, np.inf) for s in (1, -1)] + [np.nan], dtype)
    old = Target.of("llvm -mtriple=x86_64-unknown-linux-gnu -mcpu=x86-64")
    expanded = simplify_function(expand_rounding(parse_function(text), old))
    assert all(e.name != name for e in all_exprs(expanded.body) if isinstance(e, Call))
    b = np.zeros_like(a)
    interpret(expanded, a, b)
    wanted = {"round": np.rint, "trunc": np.trunc, "floor": np.floor, "ceil": np.ceil}[name](a)
    np.testing.assert_array_equal(b, wanted)
    np.testing.assert_array_equal(np.signbit(b[:-1]), np.signbit(wanted[:-1]))


def test_others_keep_the_instruction() -> None:
    function = parse_function("""
def f(A: f32[n]):
    for i in range(n):
        A[i] = floor(A[i])
""")
    for cpu in ("x86-64-v2", "neoverse-n1", "rv64gc"):
        assert expand_rounding(function, Target.of(f"llvm -mcpu={cpu}")) is function
