"""Default schedules of what memory bounds: copies, transposes, sums of large matrices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.codegen.assembly import functions_of
from tilewright import ops, te
from tilewright.ir import Block, For, evaluate, walk
from tilewright.schedule import schedule_by_rules


def of_one(
    operator: Callable[..., te.Tensor], *shape: int, dtype: str = "float32", **options: Any
) -> tuple[list[te.Tensor], te.Tensor]:
    x = te.placeholder(shape, dtype, name="X")
    return [x], operator(x, **options)


def test_transposes_write_whole_lines_where_that_saves_reading_them() -> None:
    inputs, output = of_one(ops.transpose, 67, 130, axes=(1, 0))
    function = te.function(inputs, [output], name="f")

    def tiles(target: str) -> list[str]:
        scheduled = schedule_by_rules(function, tw.Target.of(target))
        blocks = [b for b in walk(scheduled.body) if isinstance(b, Block)]
        return [b.annotations["tensor_intrin"] for b in blocks if b.annotations]

    arm = "llvm -mtriple=aarch64-unknown-linux-gnu -mcpu=neoverse-n1"
    assert tiles(arm) == ["transpose.f32x16x4.by_4"]
    x86 = "llvm -mtriple=x86_64-unknown-linux-gnu -mcpu=x86-64-v3"
    assert tiles(x86) == ["transpose.f32x8x8.by_parts"]


@pytest.mark.parametrize(
    ("shape", "axes", "order"),
    [
        ((2, 64, 6, 65), (0, 2, 1, 3), [2, 64, 6]),
        ((4, 3, 40, 2, 64), (3, 1, 0, 2, 4), [4, 3, 40, 2]),
        ((2, 64, 6, 8), (0, 2, 1, 3), [2, 6, 64]),
    ],
)
def test_large_copies_by_rows_go_through_their_source_in_order(
    shape: tuple[int, ...], axes: tuple[int, ...], order: list[int]
) -> None:
    """Unless rows are shorter than lines of the cache."""
    inputs, output = of_one(ops.transpose, *shape, axes=axes)
    function = te.function(inputs, [output], name="f")
    # Nothing is shared out: loops stay apart.
    scheduled = schedule_by_rules(function, tw.Target.of("llvm -num-cores=1 -l2=16K"))
    loops = [f for f in walk(scheduled.body) if isinstance(f, For) and f.kind == "serial"]
    assert [evaluate(f.extent, {}) for f in loops][: len(order)] == order
    x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    y = np.zeros([shape[k] for k in axes], np.float32)
    tw.build(tw.Schedule(scheduled))(x, y)
    np.testing.assert_array_equal(y, x.transpose(axes))


@pytest.mark.parametrize(
    ("dtype", "columns"),
    [("int8", 2041), ("float16", 2046), ("float32", 2048), ("float32", 2046), ("float64", 2041)],
)
def test_transposes_of_rows_that_share_places_in_the_cache(dtype: str, columns: int) -> None:
    """All registers hold such a tile; what it is too wide for goes by smaller ones."""
    wide = 8192 // tw.DType.of(dtype).itemsize
    x, rows = te.placeholder((70, wide), dtype, name="X"), columns * wide // 2048
    y = te.compute((rows, 70), lambda i, j: x[j, i], name="Y")
    target = tw.Target.of("llvm -mtriple=aarch64-unknown-linux-gnu -mcpu=neoverse-n1")
    scheduled = schedule_by_rules(te.function([x], [y], name="f"), target)
    a = (np.arange(70 * wide) % 127).reshape(70, wide).astype(x.dtype.numpy)
    b = np.zeros((rows, 70), a.dtype)
    tw.build(tw.Schedule(scheduled))(a, b)
    np.testing.assert_array_equal(b, a[:, :rows].T)
    tiles = {"int8": "i8x16x16", "float16": "f16x", "float32": "f32x16x8", "float64": "f64x8x8"}
    assert f"transpose.{tiles[dtype]}" in str(scheduled)


@pytest.mark.parametrize(
    ("shape", "cores"),
    [((257, 4096), 2), ((1030, 1000), 1), ((130, 8205), 1), ((515, 2061), 2), ((9999, 99), 1)],
)
def test_columns_of_large_matrices_ask_for_what_comes_next(
    shape: tuple[int, int], cores: int
) -> None:
    target = tw.Target.of(f"llvm -num-cores={cores} -l1d=64K -l2=1M")
    inputs, output = of_one(ops.sum, *shape, axes=[0])
    module = tw.build(te.function(inputs, [output], name="f"), target)
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    y = np.zeros(shape[1], np.float32)
    module(x, y)
    np.testing.assert_allclose(y, x.sum(0, dtype=np.float64), rtol=1e-4, atol=1e-3)
    assert "prefetch(" in str(module.ir("lowered"))


@pytest.mark.parametrize("op", ["sum", "max"])
@pytest.mark.parametrize(("shape", "by_parts"), [((520, 1024), True), ((521, 1024), False)])
def test_every_core_reads_whole_rows_of_its_own(
    op: str, shape: tuple[int, int], by_parts: bool
) -> None:
    inputs, output = of_one(getattr(ops, op), *shape, axes=[0])
    target = "llvm -num-cores=4 -l1d=64K -l2=256K"
    module = tw.build(te.function(inputs, [output], name="f"), target)
    scheduled = module.ir("scheduled")
    assert ("_rf" in str(scheduled)) == by_parts and "refused" not in scheduled.attrs
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    y = np.zeros(shape[1], np.float32)
    module(x, y)
    expected = x.sum(0, dtype=np.float64) if op == "sum" else x.max(0)
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("panels", "are_far"), [(64, True), (8, False)])
def test_weights_of_few_bits_ask_for_what_comes_next(panels: int, are_far: bool) -> None:
    """Where L2 does not hold them: they have left it since the last run."""
    blocks, per_block, lanes = 32, 16, 64
    x = te.placeholder((blocks * per_block,), name="x")
    w = te.placeholder((panels, blocks * per_block, lanes), "uint8", name="w")
    scales = te.placeholder((panels, blocks, lanes), name="scales")
    g, h = te.reduce_axis(blocks), te.reduce_axis(per_block)

    def element(p: Any, lane: Any) -> Any:
        place = g * per_block + h
        product = x[place] * te.cast(w[p, place, lane], "float32")
        return te.sum(product * scales[p, g, lane], axis=[g, h])

    f = te.function([x, w, scales], [te.compute((panels, lanes), element, name="y")], name="f")
    f = f.with_attrs(constants=(1, 2))
    lowered = str(tw.build(f, "llvm -mcpu=skylake-avx512 -l2=1M -num-cores=1").ir("lowered"))
    assert ("prefetch(" in lowered) == are_far


def test_rows_that_are_only_added_up_ask_for_what_comes_next() -> None:
    def lowered(op: Any, columns: int, **attrs: Any) -> str:
        inputs, output = of_one(op, 512, columns, **attrs)
        return str(tw.build(te.function(inputs, [output], name="f"), "llvm -l2=1M").ir("lowered"))

    assert "prefetch(" in lowered(ops.sum, 1024, axes=[1])
    assert "prefetch(" not in lowered(ops.sum, 128, axes=[1])
    assert "prefetch(" not in lowered(ops.softmax, 1024)


@pytest.mark.parametrize("cpu", ["x86-64-v3", "skylake-avx512"])
@pytest.mark.parametrize("dtype", ["int8", "float16", "bfloat16", "float32", "float64"])
def test_transposes_by_moves_within_16_bytes(cpu: str, dtype: str) -> None:
    inputs, output = of_one(ops.transpose, 150, 87, axes=(1, 0), dtype=dtype)
    function = te.function(inputs, [output], name="f")
    target = tw.Target.of(f"llvm -mcpu={cpu} -num-cores=2")
    # The moves are LLVM's: what is scheduled for another machine runs here as well.
    scheduled = schedule_by_rules(function, target)
    x = np.arange(150 * 87).reshape(150, 87).astype(inputs[0].dtype.numpy)
    y = np.zeros((87, 150), x.dtype)
    tw.build(tw.Schedule(scheduled))(x, y)
    np.testing.assert_array_equal(y, x.T)
    # No lane leaves its 16 bytes.
    names = {i.name for f in functions_of(tw.build(function, target).asm) for i in f.instructions}
    assert not {n for n in names if n.startswith("vperm")}
