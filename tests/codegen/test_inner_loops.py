"""The innermost loops of default schedules in assembly: a tile of multiply-adds, no spills."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest

import tilewright as tw
from tests.codegen.assembly import BasicBlock, functions_of, hottest_loop
from tests.codegen.emulation import run_anywhere, run_emulated
from tilewright import ops, te
from tilewright.graph import Builder, KernelTable, passes
from tilewright.graph.layouts.images import Blocking
from tilewright.ir import Alloc, Const, maximum, walk
from tilewright.schedule import Schedule
from tilewright.schedule.rules import Choices
from tilewright.schedule.rules.merge_rows import MERGE_ROWS
from tilewright.schedule.rules.products.contraction import CONTRACTION
from tilewright.schedule.rules.products.dot import DOT
from tilewright.schedule.rules.products.gather_rows import GATHER_ROWS


def _matmul(n: int, dtype: str = "float32", out: str = "float32") -> tw.Function:
    a, b = te.placeholder((n, n), dtype, name="A"), te.placeholder((n, n), dtype, name="B")
    return te.function([a, b], [ops.matmul(a, b, dtype=out, name="C")], name="matmul")


@pytest.mark.parametrize(
    "cpu", ["neoverse-n1", "x86-64-v3", "skylake-avx512", "sapphirerapids", "znver4"]
)
def test_matmul_keeps_its_tile_in_registers(cpu: str) -> None:
    target = tw.Target.of(f"llvm -mcpu={cpu} -num-cores=2")
    plan = CONTRACTION.planned(Schedule(_matmul(512)), "C", target)
    assert plan is not None
    tile = plan.tile
    function, loop = hottest_loop(tw.build(_matmul(512), target).asm)
    accumulators = {fma.accumulator for fma in loop.fmas}
    steps = tile.lanes if tile.factors == "depth" else plan.unroll
    assert len(loop.fmas) == tile.rows * tile.vectors * steps
    assert len(accumulators) == tile.rows * tile.vectors <= target.vector_registers
    assert all(re.fullmatch(r"%[xyz]mm\d+|v\d+", a) for a in accumulators)
    assert not function.on_stack(loop)
    # What is not a multiply-add: the operands, once each, requests for later ones, the loop itself.
    others = [i for i in loop.instructions if not i.name.startswith(("prefetch", "prfm"))]
    around = 6 * (steps if tile.factors == "depth" else 1)
    assert len(others) - len(loop.fmas) <= (tile.vectors + tile.rows) * steps + around


@pytest.mark.parametrize("cpu", ["x86-64-v3", "skylake-avx512"])
def test_rows_that_lie_far_apart_are_brought_together_by_vectors(cpu: str) -> None:
    module = tw.build(_matmul(512), f"llvm -mcpu={cpu} -num-cores=2")
    assert "A_global" in str(module.ir("scheduled"))
    moved = {i.name for f in functions_of(module.asm) for b in f.blocks for i in b.instructions}
    assert not moved & {"vmovss", "vextractps"}


@pytest.mark.parametrize(("batch", "m", "k", "n"), [((), 64, 512, 512), ((2,), 33, 1031, 520)])
def test_rows_that_were_brought_together_give_the_same(
    batch: tuple[int, ...], m: int, k: int, n: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = te.placeholder((*batch, m, k), name="A"), te.placeholder((*batch, k, n), name="B")
    f = te.function([a, b], [ops.matmul(a, b, name="C")], name="f")
    module = tw.build(f, "llvm -mcpu=skylake-avx512 -num-cores=16")
    assert "strides" in str(module.ir("scheduled"))
    chance = np.random.default_rng(0)
    x = chance.integers(-4, 5, (*batch, m, k)).astype("f4")
    y = chance.integers(-4, 5, (*batch, k, n)).astype("f4")
    got = np.full((*batch, m, n), np.nan, "f4")
    run_emulated(module, monkeypatch, x, y, got)
    np.testing.assert_array_equal(got, x @ y)


@pytest.mark.parametrize(("cpu", "name"), [("neoverse-n1", "sdot"), ("cascadelake", "vpdpbusd")])
def test_dot_products_keep_their_tile_in_registers(cpu: str, name: str) -> None:
    target = tw.Target.of(f"llvm -mcpu={cpu} -num-cores=2")
    a, b = ("uint8", "int8") if name == "vpdpbusd" else ("int8", "int8")
    x, y = te.placeholder((512, 512), a, name="A"), te.placeholder((512, 512), b, name="B")
    f = te.function([x, y], [ops.matmul(x, y, dtype="int32", name="C")], name="matmul")
    plan = DOT.planned(Schedule(f), "C", target)
    assert plan is not None
    functions = functions_of(tw.build(f, target).asm)
    loops = [(g, b) for g in functions for b in g.blocks if b.is_loop]
    function, loop = max(
        loops, key=lambda found: sum(i.name == name for i in found[1].instructions)
    )
    count = sum(i.name == name for i in loop.instructions)
    assert count == plan.rows * plan.columns // plan.dot.lanes
    assert not function.on_stack(loop)


@pytest.mark.parametrize("cpu", ["neoverse-n1", "x86-64-v3", "skylake-avx512", "znver4"])
def test_long_epilogues_leave_the_registers_to_the_tile(cpu: str) -> None:
    """Constants of what follows a product are not held while it is computed."""
    a, b = te.placeholder((128, 768), name="A"), te.placeholder((768, 3072), name="B")
    c = ops.matmul(a, b, name="C")
    y = ops.gelu(c)
    module = tw.build(te.function([a, b], [y], name="f"), f"llvm -mcpu={cpu} -num-cores=2")
    loops = [(f, b) for f in functions_of(module.asm) for b in f.blocks if b.is_loop]
    products = [
        (f, b)
        for f, b in loops
        # What follows has quotients, or reciprocals in their place.
        if b.fmas and not any("div" in i.name or "rcp" in i.name for i in b.instructions)
    ]
    function, loop = max(products, key=lambda found: len(found[1].fmas))
    assert len(loop.fmas) >= 12
    assert not function.on_stack(loop)


def test_loops_that_are_called_compute_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = te.placeholder((40, 32), name="A"), te.placeholder((32, 96), name="B")
    f = te.function([a, b], [ops.gelu(ops.matmul(a, b, name="C"))], name="f")
    module = tw.build(f, "llvm -mcpu=skylake-avx512 -num-cores=2")
    assert ".outlined" in module.llvm
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal(n).astype("f4") for n in ((40, 32), (32, 96)))
    got = np.full((40, 96), np.nan, "f4")
    run_emulated(module, monkeypatch, x, y, got)
    want = [v / 2 * (1 + math.erf(v / math.sqrt(2))) for v in (x @ y).ravel().tolist()]
    np.testing.assert_allclose(got.ravel(), want, atol=1e-4)


# ---- convolutions on blocked channels -----------------------------------------------------------


def _conv_kernel(target: tw.Target, size: int, kernel: int) -> tw.Function:
    """A convolution with a bias and an activation, as it is compiled in a graph."""
    width = Blocking(target).widths[0]
    b = Builder()
    x = b.input("x", "f32", (1, 64 // width, size, size, width))
    weight = np.ones((64 // width, 64 // width, kernel, kernel, width, width), "f4")
    bias = np.ones((64 // width, width), "f4")
    b.output(b.relu(b.conv_blocked(x, weight, bias, pads=[kernel // 2] * 4)))
    (binding,) = passes.fuse(target)(b.build()).main.body
    return KernelTable()(binding).function


@pytest.mark.parametrize("kernel", [1, 3])
@pytest.mark.parametrize("cpu", ["neoverse-n1", "x86-64-v3", "sapphirerapids"])
def test_blocked_convolutions_keep_their_tile_in_registers(cpu: str, kernel: int) -> None:
    target = tw.Target.of(f"llvm -mcpu={cpu} -num-cores=2")
    conv = _conv_kernel(target, 28, kernel)
    s, choices = Schedule(conv), Choices()
    MERGE_ROWS.attempt(s, "", target, choices)
    GATHER_ROWS.attempt(s, "conv", target, choices)
    plan = CONTRACTION.planned(s, "conv", target)
    assert plan is not None
    tile, built = plan.tile, tw.build(conv, target)
    function, loop = hottest_loop(built.asm)
    steps = tile.lanes if tile.factors == "depth" else 1
    accumulators = {fma.accumulator for fma in loop.fmas}
    assert len(accumulators) == tile.rows * tile.vectors <= target.vector_registers
    assert len(loop.fmas) == tile.rows * tile.vectors * steps
    assert not function.on_stack(loop)
    assert len(loop.instructions) - len(loop.fmas) <= (tile.vectors + tile.rows + 8) * steps


@pytest.mark.parametrize(
    ("width", "blocks", "rows", "vectors"), [(14, 4, 7, 3), (28, 2, 7, 3), (56, 1, 4, 4)]
)
def test_tiles_of_dot_products_grow_with_what_they_read(
    width: int, blocks: int, rows: int, vectors: int
) -> None:
    """Panels of weights that do not stay in L1 are read by tiles of many rows; all fit registers,
    and no row of an image is left over."""
    b = Builder()
    x = b.input("x", "i8", (1, blocks, width, width, 64))
    weight = np.ones((1, blocks, 3, 3, 64, 64), "i1")
    b.output(b.relu(b.conv_blocked(x, weight, pads=[1] * 4, dtype="int32")))
    target = tw.Target.of("llvm -mcpu=neoverse-n1 -num-cores=2")
    (binding,) = passes.fuse(target)(b.build()).main.body
    built = tw.build(KernelTable()(binding).function, target)
    loops = [(f, b) for f in functions_of(built.asm) for b in f.blocks if b.is_loop]
    function, loop = max(loops, key=lambda found: len(_named("sdot", found[1])))
    assert len(_named("sdot", loop)) == 4 * rows * vectors
    assert not function.on_stack(loop)


def test_bytes_of_narrow_tiles_are_stored_by_halves_of_registers() -> None:
    """Tiles of eight columns narrow eight sums at a time, not four and four."""
    b = Builder()
    x = b.input("x", "i8", (1, 3, 56, 56, 8))
    weight = np.ones((2, 3, 1, 1, 8, 16), "i1")
    sums = b.conv_blocked(x, weight, dtype="int32")
    scale = {"zero": 0, "low": -128, "high": 127, "twice": True, "least": 32, "dtype": "int8"}
    b.output(b.requantize(sums, np.int32(2**30), np.int32(36), **scale))
    target = tw.Target.of("llvm -mcpu=neoverse-n1 -num-cores=2")
    (binding,) = passes.fuse(target)(b.build()).main.body
    built = tw.build(KernelTable()(binding).function, target)
    names = [i.name for f in functions_of(built.asm) for b in f.blocks for i in b.instructions]
    assert "sqxtn2" in names
    assert "smin" not in names


@pytest.mark.parametrize("kernel", [1, 3])
def test_dot_products_of_any_image_take_rows_by_lanes(kernel: int) -> None:
    """Four groups of a row are one load, and no column of a block is padded."""
    b = Builder()
    x = b.input("x", "i8", (1, 2, "h", "w", 64))
    weight = np.ones((1, 2, kernel, kernel, 64, 64), "i1")
    sums = b.conv_blocked(x, weight, pads=[kernel // 2] * 4, dtype="int32")
    b.output(b.relu(sums))
    target = tw.Target.of("llvm -mcpu=neoverse-n1 -num-cores=2")
    (binding,) = passes.fuse(target)(b.build()).main.body
    built = tw.build(KernelTable()(binding).function, target)
    loops = [(f, b) for f in functions_of(built.asm) for b in f.blocks if b.is_loop]
    function, loop = max(loops, key=lambda found: len(_named("sdot", found[1])))
    # Four rows by four vectors, four steps at a time: 16 and 4 loads, of which some are pairs.
    assert len(_named("sdot", loop)) == 64
    assert len(_named("ld", loop)) <= 20
    assert not _named("ld1r", loop)
    assert not function.on_stack(loop)


def _pixels(high: int, wide: int) -> tw.Function:
    """A convolution of 1×1 of very few pixels."""
    b = Builder()
    x = b.input("x", "i8", (1, 2, high, wide, 64))
    weight = np.ones((1, 2, 1, 1, 64, 64), "i1")
    b.output(b.relu(b.conv_blocked(x, weight, dtype="int32")))
    target = tw.Target.of("llvm -mcpu=neoverse-n1 -num-cores=2")
    (binding,) = passes.fuse(target)(b.build()).main.body
    return KernelTable()(binding).function


@pytest.mark.parametrize(("high", "wide"), [(1, 1), (1, 5), (3, 1)])
def test_few_pixels_are_multiplied_by_dot_products(
    high: int, wide: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = tw.build(_pixels(high, wide), "llvm -mcpu=neoverse-n1 -num-cores=2")
    assert "sdot" in module.asm
    chance = np.random.default_rng(0)
    x = chance.integers(-128, 128, (1, 2, high, wide, 64)).astype("i1")
    w = chance.integers(-128, 128, (1, 2, 1, 1, 64, 64)).astype("i1")
    got = np.zeros((1, 1, high, wide, 64), "i4")
    run_anywhere(module, monkeypatch, x, w, got)
    wanted = np.einsum("nbyxk,obijkc->noyxc", x.astype("i4"), w.astype("i4"))
    np.testing.assert_array_equal(got, np.maximum(wanted, 0))


def _conv_of_bytes(
    target: tw.Target, image: tuple[int, ...], outputs: int, kernel: int
) -> tw.Function:
    """A convolution of unsigned bytes in blocks of 64 channels, as it is compiled in a graph."""
    b = Builder()
    x = b.input("x", "u8", image)
    weight = np.ones((outputs, image[1], kernel, kernel, 64, 64), "i1")
    b.output(b.conv_blocked(x, weight, pads=[kernel // 2] * 4, dtype="int32"))
    (binding,) = passes.fuse(target)(b.build()).main.body
    return KernelTable()(binding).function


@pytest.mark.parametrize("blocks", [1, 8])
@pytest.mark.parametrize("kernel", [1, 3])
def test_convolutions_of_bytes_are_not_gathered_for_instructions_that_broadcast(
    kernel: int, blocks: int
) -> None:
    """Rows of pixels are read where they are: no buffer is larger than the padded image, and the
    next panel of weights is prefetched where there are several."""
    target = tw.Target.of("llvm -mcpu=cascadelake -num-cores=2")
    built = tw.build(_conv_of_bytes(target, (1, blocks, 14, 14, 64), blocks, kernel), target)
    loops = [(f, b) for f in functions_of(built.asm) for b in f.blocks if b.is_loop]
    function, loop = max(loops, key=lambda found: len(_named("vpdpbusd", found[1])))
    assert len(_named("vpdpbusd", loop)) >= 24
    assert not function.on_stack(loop)
    assert _named("prefetch", loop) or blocks == 1
    allocs = [s for s in walk(built.ir("scheduled").body) if isinstance(s, Alloc)]
    images = [b for a in allocs for b in a.buffers if b.dtype is tw.DType.of("uint8")]
    assert [b.static_size() for b in images] == [blocks * 16 * 16 * 64] * (kernel // 2)


@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize(
    ("image", "outputs", "kernel"),
    [
        ((1, 1, 1, 1, 64), 1, 1),
        ((1, 2, 1, 5, 64), 1, 3),
        ((2, 1, 9, 13, 64), 3, 1),
        ((2, 2, 7, 7, 64), 2, 3),
        ((1, 1, 31, 17, 64), 1, 3),
    ],
)
@pytest.mark.parametrize("cpu", ["cascadelake", "x86-64-v3", "neoverse-n1"])
def test_convolutions_of_bytes_are_exact(
    cpu: str,
    image: tuple[int, ...],
    outputs: int,
    kernel: int,
    cores: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    target = tw.Target.of(f"llvm -mcpu={cpu} -num-cores={cores}")
    module = tw.build(_conv_of_bytes(target, image, outputs, kernel), target)
    chance, reach = np.random.default_rng(0), kernel // 2
    x = chance.integers(0, 256, image).astype("u1")
    w = chance.integers(-128, 128, (outputs, image[1], kernel, kernel, 64, 64)).astype("i1")
    got = np.zeros((image[0], outputs, *image[2:4], 64), "i4")
    run_anywhere(module, monkeypatch, x, w, got)
    padded = np.pad(x.astype("i4"), [(0, 0), (0, 0), (reach, reach), (reach, reach), (0, 0)])
    windows = np.lib.stride_tricks.sliding_window_view(padded, (kernel, kernel), (2, 3))
    wanted = np.einsum("nbyxkij,obijkc->noyxc", windows, w.astype("i4"), optimize=True)
    np.testing.assert_array_equal(got, wanted)


def _named(beginning: str, loop: BasicBlock) -> list[str]:
    return [i.name for i in loop.instructions if i.name.startswith(beginning)]


@pytest.mark.parametrize("cpu", ["neoverse-n1", "x86-64-v3", "sapphirerapids"])
def test_epilogues_are_done_in_the_tile(cpu: str) -> None:
    target = tw.Target.of(f"llvm -mcpu={cpu} -num-cores=2")
    scheduled = Schedule(tw.build(_conv_kernel(target, 28, 3), target).ir("scheduled"))
    loops = scheduled.loops("relu")
    shared = set(scheduled.loops("conv")) & set(loops)
    inner = [scheduled.loop_of(loop).extent for loop in loops if loop not in shared]
    trips = math.prod(e.value for e in inner if isinstance(e, Const))
    lanes = target.lanes("float32")
    assert len(shared) >= 2, "the activation runs over an image of its own"
    assert all(scheduled.loop_of(k).kind != "serial" for k in loops[-2:])
    assert all(isinstance(e, Const) for e in inner)
    assert trips <= target.vector_registers * lanes


def _stem(size: int) -> tw.Function:
    """A convolution of a picture with three channels."""
    x = te.placeholder((1, 1, size, size, 3), name="X")
    w = te.placeholder((2, 1, 3, 3, 3, 16), name="W")
    y = ops.conv_blocked(x, w, strides=[2, 2], pads=[1] * 4, name="Y")
    return te.function([x, w], [y], name="stem")


@pytest.mark.parametrize("size", [64, 300])
def test_pictures_are_padded_by_whole_vectors(size: int) -> None:
    """Whether all at once or by strips."""
    asm = tw.build(_stem(size), "llvm -mcpu=skylake-avx512 -num-cores=2").asm
    names = [i.name for f in functions_of(asm) for i in f.instructions]
    assert "vmovss" not in names and "vmovsd" not in names
    # What a row ends with is masked, as whole vectors as well.
    assert re.search(r"vmovups\s.*%zmm\d+ \{%k\d\} \{z\}", asm)


@pytest.mark.parametrize(("cpu", "size"), [("skylake-avx512", 64), ("x86-64-v3", 300)])
def test_padded_pictures_give_the_same(
    cpu: str, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = np.random.default_rng(0)
    x = chance.integers(-3, 4, (1, 1, size, size, 3)).astype("f4")
    w = chance.integers(-3, 4, (2, 1, 3, 3, 3, 16)).astype("f4")
    got = np.full((1, 2, size // 2, size // 2, 16), np.nan, "f4")
    run_emulated(tw.build(_stem(size), f"llvm -mcpu={cpu} -num-cores=2"), monkeypatch, x, w, got)
    padded = np.pad(x[0, 0], ((1, 1), (1, 1), (0, 0)))
    windows = [[padded[i : i + size : 2, j : j + size : 2] for j in range(3)] for i in range(3)]
    np.testing.assert_array_equal(got[0], np.einsum("ijyxc,oijcb->oyxb", windows, w[:, 0]))


# ---- the reader itself --------------------------------------------------------------------------


def _only_loop(function: tw.Function, cpu: str) -> BasicBlock:
    text = tw.build(function, f"llvm -mcpu={cpu} -num-cores=1").asm
    (loop,) = [b for f in functions_of(text) for b in f.blocks if b.is_loop]
    return loop


@pytest.mark.parametrize(("op", "scalar"), [("sum", "vaddss"), ("max", "vmaxss")])
@pytest.mark.parametrize("cpu", ["x86-64-v3", "skylake-avx512"])
def test_lanes_are_joined_by_halves(op: str, scalar: str, cpu: str) -> None:
    x = te.placeholder((64, 256), name="X")
    rows = te.function([x], [getattr(ops, op)(x, axes=[1])], name="rows")
    names = [i.name for i in _only_loop(rows, cpu).instructions]
    assert 0 < names.count(scalar) <= 4


def test_the_greater_of_two_vectors_takes_three_instructions() -> None:
    """It hands on NaN, and does not tell zeros apart."""
    a, b = (te.placeholder((4096,), name=n) for n in "AB")
    c = te.compute((4096,), lambda i: maximum(a[i], b[i]), name="C")
    loop = _only_loop(te.function([a, b], [c], name="f"), "skylake-avx512")
    names = [i.name for i in loop.instructions]
    count = names.count("vmaxps")
    assert count == names.count("vcmpunordps") > 0
    # Two loads, three to compare, a store; and the loop itself.
    assert len(names) <= 6 * count + 4


X86 = """
	.type	f,@function
f:
	pushq	%rbp
	movq	%rsp, %rbp
.LBB0_1:
	vmovups	-32(%rbp), %ymm1                # 32-byte Reload
	vfmadd231ps	(%rdi,%rax,4), %ymm1, %ymm0
	jne	.LBB0_1
	vmovups	%ymm0, (%rsp)
	retq
"""
ARM = """
	.type	f,@function
f:
	sub	sp, sp, #16
.LBB0_1:                                // =>This Inner Loop Header
	ldr	q1, [x1], #16
	fmla	v0.4s, v1.4s, v2.s[1]
	str	q0, [sp, #16]                   // 16-byte Spill
	cbnz	x2, .LBB0_1
	ret
"""


@pytest.mark.parametrize(
    ("text", "accumulator", "stack"),
    [(X86, "%ymm0", "vmovups -32(%rbp), %ymm1"), (ARM, "v0", "str q0, [sp, #16]")],
)
def test_spills_are_seen(text: str, accumulator: str, stack: str) -> None:
    function, loop = hottest_loop(text)
    assert [fma.accumulator for fma in loop.fmas] == [accumulator]
    assert function.on_stack(loop) == [stack]
