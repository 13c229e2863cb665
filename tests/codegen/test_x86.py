"""Instructions of x86-64 that are chosen by us: extremes with NaN."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.codegen.assembly import functions_of
from tests.codegen.emulation import run_emulated
from tilewright.tensor import ops, te

CPUS = ["skylake-avx512", "x86-64-v3"]


def _extremes(cpu: str, dtype: str) -> tw.Module:
    x = te.placeholder((9, 200), dtype, name="x")
    outputs = [ops.max(x, axis=1), ops.min(x, axis=1)]
    return tw.build(te.function([x], outputs, name="f"), f"llvm -mcpu={cpu} -num-cores=1")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("cpu", CPUS)
def test_extremes_hand_on_nan(cpu: str, dtype: str, monkeypatch: Any) -> None:
    """Wherever it stands in a row."""
    x = np.random.default_rng(0).standard_normal((9, 200)).astype(dtype)
    for row, place in enumerate((0, 1, 63, 64, 128, 191, 198, 199)):
        x[row, place] = np.nan
    high, low = (np.zeros(9, dtype) for _ in range(2))
    run_emulated(_extremes(cpu, dtype), monkeypatch, x, high, low)
    np.testing.assert_array_equal(high, x.max(1))
    np.testing.assert_array_equal(low, x.min(1))


@pytest.mark.parametrize("cpu", CPUS)
def test_extremes_wait_for_one_instruction(cpu: str) -> None:
    """It is what was read that is looked at for NaN, and not what was found so far."""
    x = te.placeholder((64, 4096), name="x")
    f = te.function([x], [ops.max(x, axis=1)], name="f")
    asm = tw.build(f, f"llvm -mcpu={cpu} -num-cores=1").asm
    loops = [b for g in functions_of(asm) for b in g.blocks if b.is_loop]
    (loop,) = [b for b in loops if any(i.name == "vmaxps" for i in b.instructions)]
    made = {i.operands.split(", ")[-1] for i in loop.instructions if i.name == "vmaxps"}
    tested = {i.operands.split(", ")[1] for i in loop.instructions if i.name == "vcmpunordps"}
    assert made and tested and not made & tested
