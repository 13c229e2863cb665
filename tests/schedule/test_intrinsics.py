"""Tensor intrinsics of targets compute what they say, and are refused where they are missing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright import ops, te
from tilewright.ir import Buffer, DType, Function, interpret, verify
from tilewright.schedule import Schedule, ScheduleError, find_intrin
from tilewright.schedule.intrinsics import (
    Dot,
    dots_for,
    interleave,
    tile_product_for,
    transpose_tile,
)
from tilewright.schedule.intrinsics.arm import ARM_DOTS, ARM_LANE_DOTS
from tilewright.schedule.intrinsics.x86 import X86_DOTS

Array = np.ndarray[Any, Any]
DOTS = {dot.name: dot for dot in (*X86_DOTS, *ARM_DOTS, *ARM_LANE_DOTS)}


def _values(buffer: Buffer, seed: int) -> Array:
    """Whole numbers of the whole range of small integers, and small ones as floats."""
    chance = np.random.default_rng(seed)
    shape = [int(d.value) for d in buffer.shape]  # type: ignore[attr-defined]
    small = buffer.dtype.is_float or buffer.dtype.bits > 8
    low, high = (-8, 8) if small else (int(buffer.dtype.min_value), int(buffer.dtype.max_value))
    return chance.integers(low, high + 1, shape).astype(buffer.dtype.numpy)


def _results(function: Function) -> list[Array]:
    verify(function)
    arrays = [_values(b, seed) for seed, b in enumerate(function.buffers)]
    interpret(function, *arrays)
    return arrays


@pytest.mark.parametrize(
    ("dtype", "lanes", "vectors", "columns", "by_parts"),
    [
        ("float32", 4, 1, 4, False),
        ("float32", 4, 4, 4, False),
        ("float32", 4, 4, 8, False),
        ("float64", 2, 4, 4, False),
        ("float16", 8, 2, 4, False),
        ("int8", 16, 1, 2, False),
        ("float32", 8, 1, 8, True),
        ("float32", 8, 2, 4, True),
    ],
)
def test_tiles_are_turned(
    dtype: str, lanes: int, vectors: int, columns: int, by_parts: bool
) -> None:
    intrin = transpose_tile(DType.of(dtype), lanes, vectors, columns, by_parts=by_parts)
    assert find_intrin(intrin.name) is intrin, "traces name it, also in other processes"
    source = np.arange(lanes * vectors * columns, dtype=dtype).reshape(-1, columns)
    for function in (intrin.description, intrin.implementation):
        result = np.zeros(source.shape[::-1], dtype)
        interpret(function, source, result)
        np.testing.assert_array_equal(result, source.T)


@pytest.mark.parametrize("name", [*DOTS, "x86.fma.512", "x86.fma.256"])
def test_implementations_do_what_descriptions_say(name: str) -> None:
    intrin = find_intrin(name)
    told, done = _results(intrin.description), _results(intrin.implementation)
    start = [_values(b, seed) for seed, b in enumerate(intrin.description.buffers)]
    for a, b in zip(told, done, strict=True):
        np.testing.assert_array_equal(a, b)
    assert not np.array_equal(told[-1], start[-1])


@pytest.mark.parametrize(("dtype", "lanes", "rows"), [("i8", 16, 4), ("i8", 4, 4), ("bf16", 8, 2)])
@pytest.mark.parametrize("become", ["", ".f32"])
def test_interleaving(dtype: str, lanes: int, rows: int, become: str) -> None:
    intrin = find_intrin(f"interleave.{rows}x{dtype}x{lanes}{become}")
    wide = DType.of(become[1:] or dtype)
    assert intrin is interleave(DType.of(dtype), lanes, rows, wide)
    for a, b in zip(_results(intrin.description), _results(intrin.implementation), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("rows", [1, 3, 5, 8])
def test_interleaving_by_groups(rows: int) -> None:
    """Rows that are missing in a group are zeros."""
    intrin = find_intrin(f"interleave.{rows}by4xi8x16")
    i8 = DType.of("i8")
    assert intrin is interleave(i8, 16, rows, i8, 4)
    (source, told), (_, done) = (_results(f) for f in (intrin.description, intrin.implementation))
    np.testing.assert_array_equal(told, done)
    groups = -(-rows // 4)
    padded = np.concatenate([source, np.zeros((groups * 4 - rows, 16), "i1")])
    wanted = padded.reshape(groups, 4, 16).transpose(0, 2, 1).reshape(told.shape)
    np.testing.assert_array_equal(told, wanted)


@pytest.mark.parametrize(
    ("cpu", "types", "name"),
    [
        ("cascadelake", "u8 i8 i32", "x86.vpdpbusd.512"),
        ("cascadelake", "i8 u8 i32", "x86.vpdpbusd_columns.512"),
        ("cascadelake", "i8 i8 i32", None),
        ("alderlake", "u8 i8 i32", "x86.vpdpbusd.256"),
        ("arrowlake", "i8 i8 i32", "x86.vpdpbssd.256"),
        ("cooperlake", "bf16 bf16 f32", "x86.vdpbf16ps.512"),
        ("skylake-avx512", "u8 i8 i32", None),
        ("skylake-avx512", "i16 i16 i32", "x86.vpmaddwd.512"),
        ("x86-64-v3", "i16 i16 i32", "x86.vpmaddwd.256"),
        ("cascadelake", "i16 i16 i32", "x86.vpdpwssd.512"),
        ("neoverse-n1", "i8 i8 i32", "arm.sdot"),
        ("neoverse-n1", "u8 u8 i32", "arm.udot"),
        ("neoverse-n1", "u8 i8 i32", None),
        ("neoverse-v1", "u8 i8 i32", "arm.usmmla"),
        ("neoverse-v1", "i8 i8 i32", "arm.smmla"),
        ("neoverse-v1", "bf16 bf16 f32", "arm.bfmmla"),
        ("cortex-a72", "i8 i8 i32", None),
    ],
)
def test_the_best_that_a_target_has(cpu: str, types: str, name: str | None) -> None:
    found = dots_for(tw.Target.of(f"llvm -mcpu={cpu}"), *map(DType.of, types.split()))
    assert (found[0].name if found else None) == name


def test_vectors_that_the_user_declines_are_not_used() -> None:
    target = tw.Target.of("llvm -mcpu=cascadelake -mattr=+prefer-256-bit")
    u8, i8, i32 = map(DType.of, ("u8", "i8", "i32"))
    assert dots_for(target, u8, i8, i32)[0].name == "x86.vpdpbusd.256"


def test_tile_products() -> None:
    i8, u8, i32, bf16, f32 = map(DType.of, ("i8", "u8", "i32", "bf16", "f32"))
    machine = tw.Target.of("llvm -mcpu=sapphirerapids")
    names = [
        found.name
        for types in ((i8, i8, i32), (u8, i8, i32), (bf16, bf16, f32))
        if (found := tile_product_for(machine, *types)) is not None
    ]
    assert names == ["tdpbssd", "tdpbusd", "tdpbf16ps"]
    without = tw.Target.of("llvm -mcpu=sapphirerapids -mattr=-amx-int8")
    assert tile_product_for(without, i8, i8, i32) is None
    assert tile_product_for(tw.Target.of("llvm -mcpu=neoverse-v1"), i8, i8, i32) is None


# ---- by hand ------------------------------------------------------------------------------------


def _product(m: int, n: int, k: int, a: str = "u8", b: str = "i8", out: str = "i32") -> Function:
    x, y = te.placeholder((m, k), a, name="A"), te.placeholder((k, n), b, name="B")
    return te.function([x, y], [ops.matmul(x, y, dtype=out, name="C")], name="product")


def _by_hand(dot: Dot) -> Schedule:
    """Operands in groups along the reduction, and the innermost loops in the dot's order."""
    s = Schedule(_product(8, 32, 16, dot.a.short, dot.b.short, dot.out.short))
    d = dot.depth
    s.transform_layout("C", "A", lambda i, k: (i // dot.rows, k // d, i % dot.rows * d + k % d))
    s.transform_layout(
        "C", "B", lambda k, j: (j // dot.columns, k // d, j % dot.columns * d + k % d)
    )
    i, j, k = s.loops("C")
    i0, *i1 = s.split(i, None, dot.rows) if dot.rows > 1 else [i]
    j0, j1 = s.split(j, None, dot.columns)
    k0, k1 = s.split(k, None, d)
    s.reorder(i0, j0, k0, *i1, j1, k1)
    s.tensorize((*i1, j1)[0], dot.name)
    return s


@pytest.mark.parametrize("name", ["x86.vpdpbusd.512", "x86.vpdpbusd.128", "arm.sdot", "arm.usdot"])
def test_tensorize(name: str) -> None:
    s = _by_hand(DOTS[name])
    assert DOTS[name].llvm in str(s)
    arrays = _results(s.function)
    x, y, z = arrays
    rows, columns = x.shape[0] * x.shape[2], y.shape[0] * y.shape[2]
    d = DOTS[name].depth
    a = x.reshape(x.shape[0], x.shape[1], -1, d).transpose(0, 2, 1, 3).reshape(-1, 16)
    b = y.reshape(y.shape[0], y.shape[1], -1, d).transpose(1, 3, 0, 2).reshape(16, -1)
    assert (rows, columns) == (8 * d, 32 * d) and z.shape == (8, 32)
    np.testing.assert_array_equal(z, a.astype(np.int32) @ b.astype(np.int32))


def test_a_target_without_the_feature_is_refused() -> None:
    s = _by_hand(DOTS["x86.vpdpbusd.256"])
    with pytest.raises(
        tw.UserError, match=r"block C_o is tensorized by x86\.vpdpbusd\.256"
    ) as caught:
        tw.build(s, "llvm -mcpu=skylake-avx512")
    assert "needs avxvnni or avx512vnni and avx512vl, and the target lacks it" in str(caught.value)
    assert "vpdpbusd" in tw.build(s, "llvm -mcpu=alderlake").asm


def test_tiles_live_in_buffers_of_scope_tile() -> None:
    s = Schedule(_product(16, 16, 64))
    i, _j, _k = s.loops("C")
    s.transform_layout("C", "A", lambda i, k: (i * 64 + k,))
    s.transform_layout("C", "B", lambda k, j: (k // 4 * 64 + j * 4 + k % 4,))
    s.transform_layout("C", "C", lambda i, j: (i * 16 + j,))
    s.decompose_reduction("C", i)
    with pytest.raises(ScheduleError, match="is not"):
        s.tensorize(s.loops("C")[0], "amx.tdpbusd")


def test_unknown_names_list_the_tables() -> None:
    with pytest.raises(
        tw.UserError, match=r"there is no tensor intrinsic 'x86\.vpdpbusd'"
    ) as caught:
        find_intrin("x86.vpdpbusd")
    assert "x86.vpdpbusd.512" in str(caught.value)
