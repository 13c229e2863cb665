"""Products of small types by a target's instructions: default schedules, in assembly and numbers.

Where this machine lacks the instruction, it is emulated (`emulation`); where it has it, it runs.
Code of another architecture runs under a full emulator (`tests/emulated`).
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import numpy as np
import pytest

import tilewright as tw
from tests.codegen.emulation import run_anywhere, run_emulated
from tests.emulated.emulator import needed_emulator
from tilewright import ops, te
from tilewright.ir import const, interpret
from tilewright.kernels import build as builds
from tilewright.kernels import module as modules
from tilewright.schedule import Schedule

Array = np.ndarray[Any, Any]


class Case(NamedTuple):
    """A product of types on a processor, and the instruction that is to do it."""

    cpu: str
    a: str
    b: str
    instruction: str
    needs: str

    @property
    def out(self) -> str:
        return "float32" if self.a == "bfloat16" else "int32"


X86 = [
    Case("cascadelake", "uint8", "int8", "vpdpbusd", "avx512vnni"),
    Case("cascadelake", "int8", "uint8", "vpdpbusd", "avx512vnni"),
    Case("cascadelake", "int8", "int8", "vpdpbusd", "avx512vnni"),
    Case("cascadelake", "uint8", "uint8", "vpdpbusd", "avx512vnni"),
    Case("alderlake", "uint8", "int8", "vpdpbusd", "avxvnni"),
    Case("arrowlake", "int8", "int8", "vpdpbssd", "avxvnniint8"),
    Case("skylake-avx512", "int8", "int8", "vpmaddwd", "avx2"),
    Case("skylake-avx512", "uint8", "uint8", "vpmaddwd", "avx2"),
    Case("x86-64-v3", "uint8", "int8", "vpmaddwd", "avx2"),
    Case("x86-64-v3", "int16", "int16", "vpmaddwd", "avx2"),
    Case("cooperlake", "bfloat16", "bfloat16", "vdpbf16ps", "avx512bf16"),
    Case("sapphirerapids", "int8", "int8", "tdpbssd", "amx-int8"),
    Case("sapphirerapids", "int8", "uint8", "tdpbsud", "amx-int8"),
    Case("sapphirerapids", "uint8", "int8", "tdpbusd", "amx-int8"),
    Case("sapphirerapids", "uint8", "uint8", "tdpbuud", "amx-int8"),
    Case("sapphirerapids", "bfloat16", "bfloat16", "tdpbf16ps", "amx-bf16"),
]
ARM = [
    Case("neoverse-n1", "int8", "int8", "sdot", "dotprod"),
    Case("neoverse-n1", "uint8", "uint8", "udot", "dotprod"),
    Case("neoverse-n1", "uint8", "int8", "sdot", "dotprod"),
    Case("neoverse-v1", "int8", "int8", "smmla", "i8mm"),
    Case("neoverse-v1", "uint8", "uint8", "ummla", "i8mm"),
    Case("neoverse-v1", "uint8", "int8", "usmmla", "i8mm"),
    Case("neoverse-v1", "int8", "uint8", "usdot", "i8mm"),
    Case("neoverse-v1", "bfloat16", "bfloat16", "bfmmla", "bf16"),
]
#: Rows, columns, steps: no whole tiles, and whole ones.
ODD, EVEN = (37, 50, 33), (64, 96, 128)


def _product(case: Case, shape: tuple[int, int, int]) -> tw.Function:
    m, n, k = shape
    a, b = te.placeholder((m, k), case.a, name="A"), te.placeholder((k, n), case.b, name="B")
    return te.function([a, b], [ops.matmul(a, b, dtype=case.out, name="C")], name="product")


def _built(case: Case, shape: tuple[int, int, int]) -> tw.Module:
    """The product for the case's processor, which the instruction must do all of."""
    module = tw.build(_product(case, shape), f"llvm -mcpu={case.cpu} -num-cores=2")
    assert _count(module, case.instruction) >= 3
    assert not _plain_products(module.asm)
    return module


def _inputs(case: Case, shape: tuple[int, int, int]) -> tuple[Array, Array]:
    chance = np.random.default_rng(sum(shape))
    m, n, k = shape
    return _numbers(chance, case.a, (m, k)), _numbers(chance, case.b, (k, n))


def _numbers(chance: Any, dtype: str, shape: tuple[int, ...]) -> Array:
    if dtype == "bfloat16":
        return chance.standard_normal(shape).astype(tw.DType.of(dtype).numpy)
    limits = np.iinfo(dtype)
    return chance.integers(limits.min, limits.max + 1, shape).astype(dtype)


def _check(case: Case, x: Array, y: Array, got: Array) -> None:
    wanted = x.astype(case.out) @ y.astype(case.out)
    if case.out == "int32":
        np.testing.assert_array_equal(got, wanted)
    else:
        np.testing.assert_allclose(got, wanted, atol=1e-3)


def _count(module: tw.Module, instruction: str) -> int:
    return len(re.findall(rf"^\s*(?:\{{vex\}}\s+)?{instruction}\s", module.asm, re.MULTILINE))


def _plain_products(assembly: str) -> list[str]:
    """Multiplications of vectors one by one."""
    return re.findall(r"\b(?:vpmulld|vmulps|vfmadd\w+ps|fmla|mla)\s[^\n]*", assembly)


@pytest.mark.parametrize(
    ("case", "shape"),
    [*((case, ODD) for case in X86), *((case, EVEN) for case in (X86[0], X86[2], *X86[-2:]))],
    ids=str,
)
def test_emulated(case: Case, shape: tuple[int, int, int], monkeypatch: Any) -> None:
    module = _built(case, shape)
    x, y = _inputs(case, shape)
    out = np.zeros((shape[0], shape[1]), case.out)
    unit = run_emulated(module, monkeypatch, x, y, out)
    _check(case, x, y, out)
    assert (case.instruction in unit.counts) == case.instruction.startswith("tdp")


@pytest.mark.parametrize("case", [c for c in X86 if c.instruction == "vpmaddwd"], ids=str)
def test_pairs_of_the_greatest_numbers_do_not_saturate(case: Case, monkeypatch: Any) -> None:
    """All combinations of the ends of both types, and few columns."""
    limits = [(np.iinfo(t).min, np.iinfo(t).max) for t in (case.a, case.b)]
    shape = (40, 24, 18)
    rows = np.array([limits[0][i % 2] for i in range(40)], case.a)
    columns = np.array([limits[1][j // 12] for j in range(24)], case.b)
    x, y = np.tile(rows[:, None], (1, 18)), np.tile(columns, (18, 1))
    out = np.zeros(shape[:2], case.out)
    run_emulated(_built(case, shape), monkeypatch, x, y, out)
    with np.errstate(over="ignore"):
        _check(case, x, y, out)


@pytest.mark.parametrize("case", ARM, ids=str)
def test_interpreted(case: Case) -> None:
    shape = (18, 21, 17)
    module = _built(case, shape)
    x, y = _inputs(case, shape)
    out = np.zeros((shape[0], shape[1]), case.out)
    interpret(module.ir("scheduled"), x, y, out)
    _check(case, x, y, out)


@pytest.mark.parametrize("case", ARM, ids=str)
def test_under_an_emulator(case: Case) -> None:
    emulator = needed_emulator("aarch64")
    module = _built(case, ODD)
    x, y = _inputs(case, ODD)
    out = np.zeros(ODD[:2], case.out)
    emulator.run_kernel(module, x, y, out)
    _check(case, x, y, out)


@pytest.mark.parametrize("shape", [ODD, EVEN], ids=str)
@pytest.mark.parametrize("case", [*X86, *ARM], ids=str)
def test_native(case: Case, shape: tuple[int, int, int]) -> None:
    here = tw.Target.of("llvm")
    if not here.has(case.needs):
        pytest.skip(f"this machine has no {case.needs}")
    module = tw.build(_product(case, shape))
    x, y = _inputs(case, shape)
    out = np.zeros((shape[0], shape[1]), case.out)
    module(x, y, out)
    _check(case, x, y, out)


def test_threads_and_epilogues(monkeypatch: Any) -> None:
    """Every thread sets its tiles up; what follows the product reads the sums from memory."""
    a, b = te.placeholder((100, 70), "uint8", name="A"), te.placeholder((70, 90), "int8", name="B")
    bias = te.placeholder((90,), "int32", name="bias")
    y = ops.relu(ops.add(ops.matmul(a, b, dtype="int32", name="C"), bias))
    f = te.function([a, b, bias], [y], name="dense")
    module = tw.build(f, "llvm -mcpu=sapphirerapids -num-cores=4")
    case = Case("", "uint8", "int8", "", "")
    x, w = _inputs(case, (100, 90, 70))
    c = np.arange(-45_000, 45_000, 1000, dtype=np.int32)
    out = np.zeros((100, 90), np.int32)
    unit = run_emulated(module, monkeypatch, x, w, c, out)
    np.testing.assert_array_equal(out, np.maximum(x.astype("int32") @ w.astype("int32") + c, 0))
    assert unit.counts["ldtilecfg"] == unit.counts["tilerelease"] > 1


def test_batches_and_transposed_operands(monkeypatch: Any) -> None:
    x = np.random.default_rng(0).integers(-128, 128, (3, 40, 24)).astype("int8")
    y = np.random.default_rng(1).integers(-128, 128, (3, 33, 40)).astype("int8")
    a, b = te.placeholder(x.shape, "int8", name="A"), te.placeholder(y.shape, "int8", name="B")
    c = ops.matmul(a, b, transpose_a=True, transpose_b=True, dtype="int32", name="C")
    f = te.function([a, b], [c], name="product")
    wanted = x.transpose(0, 2, 1).astype("int32") @ y.transpose(0, 2, 1).astype("int32")
    for cpu in ("cascadelake", "sapphirerapids"):
        module = tw.build(f, f"llvm -mcpu={cpu} -num-cores=2")
        out = np.zeros(wanted.shape, "int32")
        run_emulated(module, monkeypatch, x, y, out)
        np.testing.assert_array_equal(out, wanted)
        assert _count(module, "tdpbssd" if cpu == "sapphirerapids" else "vpdpbusd")


@pytest.mark.parametrize("cpu", ["cascadelake", "skylake-avx512", "x86-64-v3", "sapphirerapids"])
@pytest.mark.parametrize(("a", "b"), [("int8", "int8"), ("uint8", "int8"), ("uint8", "uint8")])
def test_the_ends_of_the_ranges(cpu: str, a: str, b: str, monkeypatch: Any) -> None:
    """Pairs of the largest products neither saturate nor wrap around before they are summed."""
    m, n, k = 16, 32, 66
    module = tw.build(_product(Case(cpu, a, b, "", ""), (m, n, k)), f"llvm -mcpu={cpu}")
    ends = [[np.iinfo(t).min, np.iinfo(t).max] for t in (a, b)]
    x, y = np.full((m, k), ends[0][0], a), np.full((k, n), ends[1][0], b)
    x[1::2], y[:, 1::2] = ends[0][1], ends[1][1]
    out = np.zeros((m, n), "int32")
    run_emulated(module, monkeypatch, x, y, out)
    np.testing.assert_array_equal(out, x.astype("int32") @ y.astype("int32"))


@pytest.mark.parametrize(("dtype", "beside"), [("int8", 4), ("bfloat16", 2)])
def test_tiles_that_share_lines_are_packed_together(
    dtype: str, beside: int, monkeypatch: Any
) -> None:
    case, shape = Case("sapphirerapids", dtype, dtype, "tdp", ""), (32, 128, 128)
    module = tw.build(_product(case, shape), "llvm -mcpu=sapphirerapids -num-cores=2")
    packing = Schedule(module.ir("scheduled"))
    *_, tiles, _ = packing.loops("B_global_o")
    assert packing.loop_of(tiles).extent is const(beside)
    x, y = _inputs(case, shape)
    out = np.zeros(shape[:2], case.out)
    run_emulated(module, monkeypatch, x, y, out)
    _check(case, x, y, out)


def test_bytes_are_made_wider_while_they_are_packed() -> None:
    """By whole vectors, for columns as well as for rows."""
    case = Case("", "int8", "int8", "", "")
    module = tw.build(_product(case, (256, 256, 256)), "llvm -mcpu=skylake-avx512 -num-cores=1")
    assert len(re.findall(r"vpmovsxbw.*%zmm", module.asm)) >= 3
    assert not re.search(r"\b(?:vpinsrb|vpextrb|vpmulld)\b", module.asm)


@pytest.mark.parametrize("cpu", ["cortex-a72"])
def test_other_machines_use_plain_code(cpu: str) -> None:
    case = Case(cpu, "uint8", "int8", "", "")
    module = tw.build(_product(case, (20, 36, 24)), f"llvm -mcpu={cpu} -num-cores=1")
    x, y = _inputs(case, (20, 36, 24))
    out = np.zeros((20, 36), "int32")
    interpret(module.ir("scheduled"), x, y, out)
    _check(case, x, y, out)
    assert not re.search(r"\b(?:vpdp|tdp|[su]dot)", module.asm)


def test_small_floats_without_an_instruction_are_converted_once() -> None:
    case = Case("", "bfloat16", "bfloat16", "", "")
    module = tw.build(_product(case, (64, 64, 64)), "llvm -mcpu=x86-64-v3 -num-cores=1")
    assert "A_wide" in str(module.ir("scheduled")) and "vfmadd" in module.asm
    here = tw.build(_product(case, (70, 50, 33)))
    x, y = _inputs(case, (70, 50, 33))
    out = np.zeros((70, 50), "float32")
    here(x, y, out)
    _check(case, x, y, out)


# ---- leave to use AMX ---------------------------------------------------------------------------


@pytest.fixture
def amx_machine(monkeypatch: Any) -> tw.Target:
    """As if this were a machine with AMX, whose system does not let us use it."""
    machine, real = tw.Target.of("llvm -mcpu=sapphirerapids -num-cores=2"), tw.Target.of
    monkeypatch.setattr(
        tw.Target, "of", staticmethod(lambda t="llvm": machine if t == "llvm" else real(t))
    )
    monkeypatch.setattr(modules, "request_amx", lambda: False)
    monkeypatch.setattr(builds, "request_amx", lambda: False)
    return machine


def test_code_that_must_not_run_is_refused_when_loaded(amx_machine: tw.Target) -> None:
    case = Case("", "int8", "int8", "", "")
    module = tw.build(_product(case, (64, 64, 64)), "llvm -mcpu=sapphirerapids -num-cores=1")
    assert _count(module, "tdpbssd")
    with pytest.raises(
        tw.UserError, match="it uses AMX, which the system does not let this process"
    ):
        module.native  # noqa: B018


def test_this_machine_is_taken_as_it_may_be_used(amx_machine: tw.Target) -> None:
    module = tw.build(_product(Case("", "int8", "int8", "", ""), (64, 64, 64)))
    assert amx_machine.has("amx-tile") and not module.target.has("amx-tile")
    assert _count(module, "vpdpbusd") and not _count(module, "tdpbssd")


@pytest.mark.parametrize("cpu", ["cascadelake", "skylake-avx512", "neoverse-n1"])
@pytest.mark.parametrize(
    ("n", "dtype", "wide"), [(70, "int8", "int32"), (516, "float32", "float32")]
)
def test_a_matrix_times_itself(cpu: str, n: int, dtype: str, wide: str, monkeypatch: Any) -> None:
    """Either side is packed, shifted and made wider by itself."""
    x = te.placeholder((n, n), dtype, name="X")
    k = te.reduce_axis(n, name="k")
    y = te.compute(
        (n, n), lambda i, j: te.sum(te.cast(x[i, k], wide) * te.cast(x[k, j], wide), axis=k)
    )
    module = tw.build(te.function([x], [y], name="f"), f"llvm -mcpu={cpu} -num-cores=1")
    assert "refused" not in module.ir("scheduled").attrs
    given = np.random.default_rng(0).integers(-128, 128, (n, n)).astype(dtype)
    got = np.zeros((n, n), wide)
    run_anywhere(module, monkeypatch, given, got)
    np.testing.assert_array_equal(got, given.astype(np.int64) @ given.astype(np.int64))
