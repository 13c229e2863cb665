"""Instructions of x86-64 that are chosen by us: extremes with NaN, masked loads."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.codegen.assembly import functions_of
from tests.codegen.emulation import run_emulated
from tests.machines import native_targets
from tilewright import ops, te
from tilewright.ir import parse_function

CPUS = ["skylake-avx512", "x86-64-v3"]


def _extremes(cpu: str, dtype: str) -> tw.Module:
    x = te.placeholder((9, 200), dtype, name="x")
    outputs = [ops.max(x, axes=(1,)), ops.min(x, axes=(1,))]
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
    f = te.function([x], [ops.max(x, axes=(1,))], name="f")
    asm = tw.build(f, f"llvm -mcpu={cpu} -num-cores=1").asm
    loops = [b for g in functions_of(asm) for b in g.blocks if b.is_loop]
    (loop,) = [b for b in loops if any(i.name == "vmaxps" for i in b.instructions)]
    made = {i.operands.split(", ")[-1] for i in loop.instructions if i.name == "vmaxps"}
    tested = {i.operands.split(", ")[1] for i in loop.instructions if i.name == "vcmpunordps"}
    assert made and tested and not made & tested


@pytest.mark.parametrize("cpu", ["haswell", "skylake-avx512"])
@pytest.mark.parametrize("is_constant", [True, False], ids=["constant", "operand"])
@pytest.mark.parametrize(
    ("dtype", "zero"),
    [("uint8", 0), ("uint8", 3), ("uint8", 255), ("int8", 0), ("int8", -128), ("int8", 127)],
)
def test_floats_are_rounded_to_bytes_by_packs(
    dtype: str, zero: int, is_constant: bool, cpu: str, monkeypatch: Any
) -> None:
    """All kinds of floats: halves, those far outside, infinities and NaN, which is 0."""
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 2**32, 20_000, dtype=np.uint32).view(np.float32)
    near = np.arange(-400, 400, 0.25, dtype=np.float32)
    special = np.array([np.nan, np.inf, -np.inf, -0.0, 2.0**31, -(2.0**31)], np.float32)
    values = np.concatenate([bits, near, special])
    values = np.resize(values, -(-len(values) // 64) * 64)
    limits = np.iinfo(dtype)
    x, z = te.placeholder(values.shape, name="x"), te.placeholder((1,), dtype, name="z")
    added = te.const(float(zero), "float32") if is_constant else te.cast(z[0], "float32")

    def element(i: Any) -> Any:
        held = te.clip(te.round(x[i]) + added, limits.min, limits.max)
        return te.cast(te.cast(held, "int32"), dtype)

    y = te.compute(values.shape, element, name="y")
    operands = [x] if is_constant else [x, z]
    module = tw.build(te.function(operands, [y], name="f"), f"llvm -mcpu={cpu} -num-cores=1")
    packs = "vpacks" if dtype == "int8" else "vpackus"
    assert any(name in module.asm for name in (packs, "vpmovdb"))
    assert "vcvtps2dq" in module.asm
    assert not any(name in module.asm for name in ("vroundps", "vrndscaleps", "vcvttps2dq"))
    with np.errstate(all="ignore"):
        want = np.clip(np.nan_to_num(np.rint(values) + np.float32(zero)), limits.min, limits.max)
    got = np.zeros(values.shape, dtype)
    zeros = [] if is_constant else [np.array([zero], dtype)]
    run_emulated(module, monkeypatch, values, *zeros, got)
    np.testing.assert_array_equal(got, want.astype(np.int64).astype(dtype))


@pytest.mark.parametrize("less", [0, 8])
@pytest.mark.parametrize("is_high", [False, True])
def test_numbers_of_four_bits_come_from_a_table(less: int, is_high: bool, monkeypatch: Any) -> None:
    x = te.placeholder((4096,), "uint8", name="x")

    def element(i: Any) -> Any:
        number = te.cast(x[i] >> 4 if is_high else x[i] & 15, "float32")
        return number - te.const(float(less), "float32") if less else number

    y = te.compute((4096,), element, name="y")
    module = tw.build(te.function([x], [y], name="f"), "llvm -mcpu=skylake-avx512 -num-cores=1")
    assert "vpermps" in module.asm or "vpermd" in module.asm
    assert "vcvtdq2ps" not in module.asm
    values, got = np.resize(np.arange(256, dtype=np.uint8), 4096), np.empty(4096, np.float32)
    run_emulated(module, monkeypatch, values, got)
    np.testing.assert_array_equal(got, (values >> 4 if is_high else values & 15) - np.float32(less))


@pytest.mark.parametrize("name", ["sigmoid", "tanh", "erf"])
def test_quotients_by_reciprocals_are_exact(name: str, monkeypatch: Any) -> None:
    """Within the error of the functions as such: reciprocals with 14 bits take one step."""
    x = te.placeholder((4096,), name="x")
    y = te.compute((4096,), lambda i: getattr(te, name)(x[i]), name="y")
    cpus = "haswell", "skylake-avx512"
    f = te.function([x], [y], name="f")
    dividing, module = (tw.build(f, f"llvm -mcpu={cpu} -num-cores=1") for cpu in cpus)
    assert "vrcp14ps" in module.asm and "vdivps" not in module.asm
    values = np.linspace(-12, 12, 4096).astype(np.float32)
    wanted, got = np.empty_like(values), np.empty_like(values)
    run_emulated(dividing, monkeypatch, values, wanted)
    run_emulated(module, monkeypatch, values, got)
    np.testing.assert_array_max_ulp(got, wanted, 2)


_EVERY_SECOND = """
def f(A: {dtype}[n], B: {dtype}[m]):
    for i in range((m + 15) // 16):
        for j in vectorized(16):
            if i * 16 + j < m and (i * 16 + j) * {step} < n:
                B[i * 16 + j] = A[(i * 16 + j) * {step}]
"""


@pytest.mark.parametrize("target", native_targets())
@pytest.mark.parametrize("step", [2, 3, 4, 5])
@pytest.mark.parametrize("dtype", ["f32", "f64", "i8", "i16"])
def test_masked_loads_of_every_second(target: str, step: int, dtype: str) -> None:
    text = _EVERY_SECOND.format(dtype=dtype, step=step)
    module = tw.build(tw.Schedule(parse_function(text)), target)
    kind = tw.DType.of(dtype).numpy
    for size in (1, 15, 16, 37):
        x = np.arange(1 + (size - 1) * step).astype(kind)
        got = np.zeros(size + 3, kind)
        module(x, got)
        np.testing.assert_array_equal(got, [*x[::step], 0, 0, 0])


@pytest.mark.parametrize("cpu", ["haswell", "skylake-avx512"])
def test_masked_loads_of_every_second_take_no_branches(cpu: str) -> None:
    text = _EVERY_SECOND.format(dtype="f32", step=2)
    module = tw.build(tw.Schedule(parse_function(text)), f"llvm -mcpu={cpu}")
    assert len(re.findall(r"^\s+j\w+\s", module.asm, re.MULTILINE)) < 16
