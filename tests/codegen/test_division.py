"""Indices that are known not to be negative are divided as numbers without a sign."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tilewright.codegen.llvm.backend import LlvmCode
from tilewright.ir import Function, parse_function
from tilewright.kernels.pipeline import generated

ROWS = """
def f(A: f32[m, n], C: f32[n * m]):
    for ij in {kind}(n * m):
        C[ij] = A[ij % m, ij // m]
"""
SHIFTED = """
def f(A: f32[n], C: f32[n]):
    for i in range(n):
        C[i] = A[max((i - n + 4) // 3, 0)]
"""


def llvm_of(function: Function) -> str:
    code = generated(function, tw.Target.of("llvm"))
    assert isinstance(code, LlvmCode)
    return code.generated


@pytest.mark.parametrize("kind", ["range", "parallel"])
def test_what_loops_count_needs_no_sign(kind: str) -> None:
    function = parse_function(ROWS.format(kind=kind))
    text = llvm_of(function)
    assert "udiv" in text and "urem" in text
    assert "sdiv" not in text and "srem" not in text
    a, c = np.arange(35, dtype=np.float32).reshape(7, 5), np.zeros(35, np.float32)
    tw.build(function)(a, c)
    np.testing.assert_array_equal(c, a.T.ravel())


def test_what_may_be_negative_rounds_down() -> None:
    function = parse_function(SHIFTED)
    assert "sdiv" in llvm_of(function)
    a, c = np.arange(9, dtype=np.float32), np.zeros(9, np.float32)
    tw.build(function)(a, c)
    np.testing.assert_array_equal(c, np.maximum((np.arange(9) - 5) // 3, 0))
