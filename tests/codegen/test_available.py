"""What is loaded once need not be loaded again, until it is written to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.codegen.llvm.backend import LlvmCode
from tilewright.ir import parse_function
from tilewright.kernels.pipeline import generated
from tilewright.target import Target

Agrees = Callable[..., tw.Module]


def numbers(size: int) -> np.ndarray[Any, Any]:
    return np.arange(1, size + 1, dtype=np.float32)


def loads(text: str) -> int:
    """How many elements, or vectors of them, the kernel reads as it is generated."""
    target = Target.of("llvm")
    code = generated(parse_function(text), target)
    assert isinstance(code, LlvmCode)
    lines = code.generated.splitlines()
    return sum(" = load float" in line or " = load <" in line for line in lines)


def test_one_load_for_all_who_read_an_element(agrees: Agrees) -> None:
    text = """
def f(A: f32[8], B: f32[8], C: f32[8]):
    for i in range(8):
        B[i] = A[i] * 2.0
        C[i] = A[i] * 3.0
"""
    assert loads(text) == 1
    agrees(text, *(numbers(8) for _ in range(3)))


def test_what_was_stored_is_not_loaded(agrees: Agrees) -> None:
    text = """
def f(A: f32[8], B: f32[8]):
    T = alloc(f32[4])
    for k in unrolled(4):
        T[k] = 0.0
    for i in unrolled(2):
        for k in unrolled(4):
            T[k] = T[k] + A[i * 4 + k]
    for k in unrolled(4):
        B[k] = T[k]
"""
    assert loads(text) == 8
    agrees(text, numbers(8), numbers(8))


#: Between two reads of A[3] or A[0 … 3], something is written that may be the same.
_WRITES = {
    "the element": "A[3] = 9.0",
    "an element that is not known": "A[i] = 9.0",
    "a vector over it": "A[ramp(2, 1, 4)] = broadcast(9.0, 4)",
    "here and there": "A[ramp(0, 3, 2)] = broadcast(9.0, 2)",
    "on a condition": "if B[i] > 2.0:\n            A[3] = 9.0",
    "in a loop": "for j in range(5):\n            A[j] = 9.0",
    "in parallel": "for j in parallel(5):\n            A[j] = 9.0",
    "under a mask": "store(A[ramp(0, 1, 4)], B[ramp(0, 1, 4)], ramp(0, 1, 4) < broadcast(4, 4))",
}


@pytest.mark.parametrize("write", _WRITES.values(), ids=_WRITES.keys())
def test_writes_are_seen(write: str, agrees: Agrees) -> None:
    text = f"""
def f(A: f32[8], B: f32[8], C: f32[8], D: f32[8], E: f32[8]):
    for i in range(4):
        C[i] = A[3] + A[3] * 2.0 + A[i + 1]
        {write}
        D[i] = A[3]
        E[i] = A[3] * 2.0 + A[i + 1]
"""
    agrees(text, *(numbers(8) for _ in range(5)))


def test_vectors_are_seen_to_change(agrees: Agrees) -> None:
    text = """
def f(A: f32[8], C: f32[4], D: f32[4], E: f32[4]):
    C[ramp(0, 1, 4)] = A[ramp(0, 1, 4)]
    A[4] = 7.0
    D[ramp(0, 1, 4)] = A[ramp(0, 1, 4)]
    A[3] = 9.0
    E[ramp(0, 1, 4)] = A[ramp(0, 1, 4)]
"""
    assert loads(text) == 2
    agrees(text, numbers(8), *(numbers(4) for _ in range(3)))


def test_a_loop_sees_what_its_last_turn_wrote(agrees: Agrees) -> None:
    text = """
def f(A: f32[8], B: f32[8]):
    B[0] = A[3]
    for i in range(8):
        B[i] = A[3] + A[2]
        A[3] = B[i]
    B[7] = B[7] + A[3]
"""
    agrees(text, numbers(8), numbers(8))


def test_operands_that_may_be_written_over() -> None:
    text = """
def f(A: f32[8], B: f32[8]):
    B[0] = A[0] * 2.0
    B[1] = A[0]
"""
    assert loads(text) == 1
    assert loads(f"@attrs(in_place=[0]){text}") == 2
