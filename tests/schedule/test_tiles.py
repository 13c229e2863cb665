"""Tiles of accumulators: within the registers, and within what the caches deliver."""

from __future__ import annotations

import pytest

from tilewright.ir import DType
from tilewright.schedule.rules.products.tiles import (
    Size,
    Tile,
    choose_tile,
    packed_columns,
    packing_pays,
    steps_ahead,
)
from tilewright.target import Target

F32 = DType.of("float32")
CPUS = ["neoverse-n1", "x86-64-v3", "skylake-avx512", "sapphirerapids", "znver4"]


def of(cpu: str) -> Target:
    return Target.of(f"llvm -mcpu={cpu} -num-cores=2")


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("size", [Size(), Size(1024, 1024, 1024), Size(128, 768, 3072)])
def test_large_tiles_keep_the_units_busy_from_the_second_cache(cpu: str, size: Size) -> None:
    """Four fifths of the registers are in use, and a cycle asks for few bytes."""
    target = of(cpu)
    tile = choose_tile(target, F32, size, "rows")
    held = tile.rows * tile.vectors + tile.vectors
    assert 0.8 * target.vector_registers <= held <= target.vector_registers
    cycles = tile.rows * tile.vectors / target.fma_ports
    assert 4 * (tile.rows + tile.columns) / cycles <= 20


def test_panels_of_deep_products_fit_the_second_cache() -> None:
    target = of("skylake-avx512")
    wide = choose_tile(target, F32, Size(256, 768, 768), "rows")
    deep = choose_tile(target, F32, Size(256, 768, 4096), "rows")
    assert deep.columns < wide.columns
    assert 4096 * deep.columns * 4 < target.caches.l2


@pytest.mark.parametrize("cpu", CPUS)
def test_small_products_have_small_tiles(cpu: str) -> None:
    tile = choose_tile(of(cpu), F32, Size(1, of(cpu).lanes(F32), 64), "rows")
    assert (tile.rows, tile.vectors) == (1, 1)


@pytest.mark.parametrize("columns", [256, 320, 1024, 3072])
@pytest.mark.parametrize("cpu", CPUS)
def test_columns_are_packed_so_that_few_are_made_up(cpu: str, columns: int) -> None:
    width = packed_columns(of(cpu), F32, columns)
    assert -(-columns // width) * width <= 1.06 * columns


def test_rows_are_packed_for_many_columns_alone() -> None:
    target, packed, spread = of("neoverse-n1"), Tile(8, 3, 4, "rows"), Tile(7, 3, 4, "depth")
    assert packing_pays(target, F32, packed, spread, Size(128, 768, 768))
    assert not packing_pays(target, F32, packed, spread, Size(128, 12, 768))


def test_operands_are_asked_for_early_where_they_lie_far_and_instructions_are_to_spare() -> None:
    assert steps_ahead(of("neoverse-n1"), Tile(8, 3, 4, "rows"), F32, 768) == 16
    assert steps_ahead(of("neoverse-n1"), Tile(8, 3, 4, "rows"), F32, 64) == 0
    assert steps_ahead(of("x86-64-v3"), Tile(6, 2, 8, "broadcast"), F32, 768) == 0
