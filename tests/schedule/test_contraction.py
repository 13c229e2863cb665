"""How sums of products are cut, and what is left of that in the loops that run."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tilewright import ops, te
from tilewright.ir import Alloc, Buffer, Const, Function, walk
from tilewright.schedule import Rules
from tilewright.schedule.rules.products.chunks import even_parts, evenly_cut


def lowered(inputs: list[te.Tensor], output: te.Tensor, target: str) -> Function:
    function = te.function(inputs, [output], name="f")
    return tw.build(function, f"llvm -mcpu={target} -num-cores=1").ir("compact_buffers")


def allocated(function: Function, name: str) -> Buffer:
    allocs = [s for s in walk(function.body) if isinstance(s, Alloc)]
    (found,) = [b for s in allocs for b in s.buffers if b.name.startswith(name)]
    return found


def test_strips_of_an_image_are_padded_by_themselves_where_the_last_one_is_shorter() -> None:
    x, w = te.placeholder((1, 8, 56, 56, 16), name="X"), te.placeholder((2, 8, 3, 3, 16, 16))
    function = lowered([x, w], ops.conv_blocked(x, w, strides=[2, 2], pads=[1] * 4), "neoverse-n1")
    rows = int(allocated(function, "image_pad").shape[2].value)  # type: ignore[union-attr]
    steps = (rows - 1) // 2
    assert rows < 28 and 28 % steps


def test_tiles_hold_rows_of_small_images_rather_than_of_a_batch_of_any_size() -> None:
    n = te.var("n")
    x, w = te.placeholder((n, 16, 3, 3, 16), name="X"), te.placeholder((16, 16, 3, 3, 16, 16))
    output = ops.conv_blocked(x, w, strides=[1, 1], pads=[1] * 4, name="C")
    sums = allocated(lowered([x, w], output, "neoverse-n1"), "C_local")
    images, rows, columns = (int(sums.shape[k].value) for k in (0, 2, 3))  # type: ignore[union-attr]
    assert images == 1 and rows * columns == 3


@pytest.mark.parametrize(("tiles", "fit", "cores"), [(256, 10, 2), (128, 16, 2), (25, 26, 1)])
def test_chunks_of_rows_are_even_over_the_cores(tiles: int, fit: int, cores: int) -> None:
    size = evenly_cut(tiles, fit, tw.Target.of(f"llvm -num-cores={cores}"))
    chunks = -(-tiles // size)
    assert size <= fit and -(-chunks // cores) * size * cores == tiles


def product(m: int, k: int, n: int, target: str, cores: int = 1) -> tw.Module:
    a, b = te.placeholder((m, k), name="A"), te.placeholder((k, n), name="B")
    function = te.function([a, b], [ops.matmul(a, b, name="C")], name="f")
    return tw.build(function, f"llvm -mcpu={target} -num-cores={cores}")


def bytes_of(buffer: Buffer) -> int:
    sizes = [int(d.value) for d in buffer.shape if isinstance(d, Const)]
    assert len(sizes) == buffer.ndim
    return int(np.prod(sizes)) * buffer.dtype.itemsize


@pytest.mark.parametrize("shape", [(2048, 2048, 768), (2000, 519, 768), (197, 768, 768)])
def test_rows_are_packed_by_squares_as_far_as_whole_ones_lie(shape: tuple[int, int, int]) -> None:
    scheduled = str(product(*shape, "neoverse-n1").ir("scheduled"))
    assert "transpose.f32x4x4" in scheduled


def test_packed_rows_take_the_room_of_a_chunk() -> None:
    function = product(2048, 2048, 768, "neoverse-n1").ir("compact_buffers")
    assert bytes_of(allocated(function, "A_global")) <= 1 << 20


@pytest.mark.parametrize("cpu", ["neoverse-n1", "skylake-avx512"])
def test_columns_that_meet_one_chunk_of_rows_are_packed_panel_by_panel(cpu: str) -> None:
    single = product(128, 512, 3072, cpu).ir("compact_buffers")
    several = product(2048, 2048, 384, cpu).ir("compact_buffers")
    assert bytes_of(allocated(single, "B_global")) <= 512 * 64 * 4
    assert bytes_of(allocated(several, "B_global")) >= 2048 * 384 * 4


@pytest.mark.parametrize(
    "shape", [(130, 519, 333), (64, 96, 1000), (197, 100, 60), (300, 2048, 37)]
)
@pytest.mark.parametrize("cores", [1, 2])
def test_panels_and_squares_that_are_not_whole_hold_the_same(
    shape: tuple[int, int, int], cores: int
) -> None:
    m, k, n = shape
    rng = np.random.default_rng(m)
    a, b = rng.standard_normal((m, k), np.float32), rng.standard_normal((k, n), np.float32)
    c = np.full((m, n), np.nan, np.float32)
    x, y = te.placeholder((m, k), name="A"), te.placeholder((k, n), name="B")
    function = te.function([x, y], [ops.matmul(x, y, name="C")], name="f")
    tw.build(function, f"llvm -num-cores={cores}", threads=cores)(a, b, c)
    np.testing.assert_allclose(c, a @ b, rtol=1e-4, atol=1e-3)


def test_what_has_no_second_cache_packs_few_rows_and_asks_for_nothing() -> None:
    a, b = te.placeholder((64, 512), name="A"), te.placeholder((512, 64), name="B")
    function = te.function([a, b], [ops.matmul(a, b, name="C")], name="f")
    small = tw.Target.of("llvm -mcpu=cortex-m4")
    offered = Rules().offered(function, small)
    assert offered["contraction(C).prefetch_next"] == (False,)
    assert offered["contraction(C).unroll"] == (1,)
    assert offered["contraction(C).chunk"][0] in (0, 1)


@pytest.mark.parametrize(
    ("tiles", "cores", "parts"),
    [(192, 2, 8), (48, 2, 8), (50, 2, 2), (20, 2, 2), (5, 2, 2), (1, 4, 4), (96, 16, 16)],
)
def test_columns_are_cut_so_that_slow_threads_can_be_helped(
    tiles: int, cores: int, parts: int
) -> None:
    """Into several parts for each thread, where that leaves the busiest about the same work."""
    assert even_parts(tiles, cores) == parts


@pytest.mark.parametrize(("rows", "parts"), [(128, 3), (197, 3), (1024, 1)])
def test_long_reductions_over_constant_columns_are_cut_while_sums_fit_l2(
    rows: int, parts: int
) -> None:
    """Rows are copied as they are, in parts as well: tiles broadcast their elements."""
    a, b = te.placeholder((rows, 3072), name="A"), te.placeholder((3072, 768), name="B")
    function = te.function([a, b], [ops.matmul(a, b, name="C")], name="f")
    target = tw.Target.of("llvm -mcpu=cascadelake -num-cores=2")
    schedule = Rules().schedule(function.with_attrs(constants=(1,)), target)
    sums = schedule.block_of("C_rf" if parts > 1 else "C")
    assert parts == (sums.iters[2].extent.value if parts > 1 else 1)  # type: ignore[union-attr]
    packed = next(r.buffer for r in sums.reads if r.buffer.name.startswith("A"))
    assert packed.shape[-1] == Const(3072, packed.shape[-1].dtype) and packed.strides is not None
