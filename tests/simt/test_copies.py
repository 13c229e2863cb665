"""Asynchronous copies land when they are waited for, not before."""

from __future__ import annotations

import numpy as np
import pytest

from tests.simt.kernel_text import execute, zeros
from tilewright.simt import SimtError

KERNEL = """
def k(A: f32[64], B: f32[64]):
    for b in thread(1, "blockIdx.x"):
        S = alloc(f32[64], scope="shared")
        for t in thread(16, "threadIdx.x"):
            async_copy(address_of(S[t * 4]), address_of(A[t * 4]), 16, {read})
        {after}
        for t in thread(64, "threadIdx.x"):
            B[t] = S[63 - t]
"""
LANDED = "async_commit()\n        async_wait(0)\n        barrier()"


def copied(read: str = "16", after: str = LANDED) -> np.ndarray:
    a, b = np.arange(64, dtype="float32"), zeros(64)
    execute(KERNEL.format(read=read, after=after), a, b)
    return b


def test_what_was_waited_for_has_landed() -> None:
    np.testing.assert_array_equal(copied(), np.arange(64)[::-1])


def test_what_is_not_read_is_zero() -> None:
    b = copied(read="(16 if t < 8 else 0)")
    np.testing.assert_array_equal(b, [0.0] * 32 + list(range(31, -1, -1)))


@pytest.mark.parametrize(
    "after",
    [
        "async_commit()\n        barrier()",
        "async_commit()\n        async_wait(1)\n        barrier()",
    ],
)
def test_what_was_not_waited_for_is_unknown(after: str) -> None:
    with pytest.raises(SimtError, match="unknown"):
        copied(after=after)


def test_a_wait_is_no_barrier() -> None:
    with pytest.raises(SimtError, match="race"):
        copied(after="async_commit()\n        async_wait(0)")
