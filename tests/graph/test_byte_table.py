"""Functions of bytes by tables: what they give, in which layouts, and by which instructions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.graph.harness import check
from tilewright import te
from tilewright.graph import Builder, Call, Module, Step, Value, evaluate, run_passes
from tilewright.graph.passes import algebra, dead_code
from tilewright.ops import byte_table
from tilewright.schedule import Schedule
from tilewright.support.errors import UserError

RNG = np.random.default_rng(3)


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("shape", [(256,), (3, 5), (2, 7, 9), (1,)])
def test_every_byte_has_an_element(dtype: str, shape: tuple[int, ...]) -> None:
    info = np.iinfo(dtype)
    x = np.arange(info.min, info.max + 1) if shape == (256,) else RNG.integers(0, 100, shape)
    table = RNG.integers(-128, 128, 256).astype(np.int8)
    (found,) = check("byte_table", [x.astype(dtype), table], symbolic=False)
    np.testing.assert_array_equal(found, table[x - info.min])


def test_what_fills_the_last_block_stays_zero() -> None:
    """Channels that make no whole block, before a convolution that sums over the block."""
    b = Builder()
    x = b.input("x", "int8", (1, 16, 6, 6))
    table = b.constant(np.full(256, 7, np.int8))
    weights = RNG.integers(-9, 9, (20, 16, 1, 1)).astype(np.int8)
    first = b.cast(b.conv_integer(x, weights), dtype="int8")
    second = RNG.integers(-9, 9, (8, 20, 3, 3)).astype(np.int8)
    b.output(b.conv_integer(b.byte_table(first, table), second))
    image = RNG.integers(-5, 5, (1, 16, 6, 6)).astype(np.int8)
    (found,) = tw.compile(b.build()).run({"x": image})
    wanted = 7 * second.astype(np.int32).sum((1, 2, 3))
    image = np.broadcast_to(wanted[:, None, None], (1, 8, 4, 4))
    np.testing.assert_array_equal(np.asarray(found), image)


def product_by_itself(b: Builder, x: Value, table: Any) -> Value:
    """x · f(x) of bytes, with TFLite's roundings."""
    factors = (_centred(b, v, zero) for v, zero in ((x, -9), (b.byte_table(x, table), 5)))
    return _rounded(b, b.mul(*factors), 0x61A80000, 38, 3)


def _centred(b: Builder, x: Value, zero: int) -> Value:
    return b.sub(b.cast(x, dtype="int32"), np.int32(zero))


def _rounded(b: Builder, x: Value, multiplier: int, shift: int, zero: int) -> Value:
    scale = (np.int32(multiplier), np.int32(shift))
    ends = {"low": -128, "high": 127}
    return b.requantize(x, *scale, zero=zero, **ends, dtype="int8", twice=True, least=shift)


def operators(module: Module) -> list[str]:
    return [b.expr.op.name for b in module.main.body if isinstance(b.expr, Call)]


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_a_function_of_one_byte_is_one_table(dtype: str) -> None:
    table = RNG.integers(-128, 128, 256).astype(np.int8)
    b = Builder()
    x = b.input("x", dtype, (256,))
    made = product_by_itself(b, x, table)
    b.output(b.maximum(_rounded(b, _centred(b, made, 3), 0x70000000, 30, -7), np.int8(-20)))
    module = b.build()
    changed = run_passes(module, [Step(algebra), Step(dead_code)])
    assert operators(changed) == ["byte_table"]
    (array,) = [np.arange(256).astype(np.uint8).view(dtype)]
    np.testing.assert_array_equal(evaluate(changed, [array])[0], evaluate(module, [array])[0])
    np.testing.assert_array_equal(
        np.asarray(tw.compile(module).run([array])[0]), evaluate(module, [array])[0]
    )


def test_functions_of_two_tensors_are_computed() -> None:
    b = Builder()
    x, y = b.input("x", "int8", (4, 5)), b.input("y", "int8", (4, 5))
    total = b.mul(_centred(b, x, 1), _centred(b, y, 2))
    b.output(_rounded(b, total, 0x61A80000, 38, 3))
    b.output(_rounded(b, b.mul(_centred(b, x, 1), np.arange(5, dtype=np.int32)), 1 << 30, 33, 0))
    assert "byte_table" not in operators(algebra(b.build()))


def test_what_costs_little_stays_as_it_is() -> None:
    b = Builder()
    x = b.input("x", "int8", (4, 5))
    b.output(b.maximum(x, np.int8(3)))
    b.output(b.byte_table(x, np.zeros(256, np.int8)))
    assert operators(algebra(b.build())) == ["maximum", "byte_table"]


@pytest.mark.parametrize("groups", [1, 48])
def test_a_table_is_looked_up_where_a_convolution_ends(groups: int) -> None:
    table = RNG.integers(-128, 128, 256).astype(np.int8)
    b = Builder()
    x = b.input("x", "int8", (1, 48, 9, 7))
    weights = RNG.integers(-9, 9, (48, 48 // groups, 3, 3)).astype(np.int8)
    total = b.conv(x, weights, pads=[1, 1, 1, 1], groups=groups, dtype="int32")
    b.output(product_by_itself(b, _rounded(b, total, 0x61A80000, 36, 3), table))
    module = b.build()
    image = RNG.integers(-128, 128, (1, 48, 9, 7)).astype(np.int8)
    model = tw.compile(module)
    np.testing.assert_array_equal(np.asarray(model.run([image])[0]), evaluate(module, [image])[0])
    assert isinstance(model, tw.Model)
    assert sum("byte_table" in name for name in model.kernels) == 1
    assert not any("mul" in name for name in model.kernels)
    (name,) = [k for k in model.kernels if "byte_table" in k]
    assert "conv" in name or "depthwise" in name
    found = tw.compile(module, target="simt").run([image])[0]
    np.testing.assert_array_equal(np.asarray(found), evaluate(module, [image])[0])


@pytest.mark.parametrize(("groups", "at_once"), [(1, 1), (48, 2)])
def test_tables_have_registers(groups: int, at_once: int) -> None:
    """Beside sums of windows there are none left: what they give is looked up row by row."""
    b = Builder()
    x = b.input("x", "int8", (1, 48, 16, 16))
    weights = RNG.integers(-9, 9, (48, 48 // groups, 3, 3)).astype(np.int8)
    total = b.conv(x, weights, pads=[1, 1, 1, 1], groups=groups, dtype="int32")
    rounded = _rounded(b, total, 0x61A80000, 36, 3)
    b.output(b.byte_table(rounded, RNG.integers(-128, 128, 256).astype(np.int8)))
    target = tw.Target.of("llvm -mcpu=neoverse-n1 -num-cores=1")
    model = tw.compile(b.build(), target)
    assert isinstance(model, tw.Model)
    (name,) = [k for k in model.kernels if "byte_table" in k]
    built = tw.build(model.ir(name), target)
    names = [block.name for block in Schedule(built.ir("scheduled")).blocks()]
    assert len({"requantized", "byte_table"}.intersection(names)) == at_once
    assert "tbl\t" in built.asm and "ldrb" not in built.asm


def test_other_types_are_refused() -> None:
    b = Builder()
    x, table = b.input("x", "int16", (4,)), b.constant(np.zeros(256, np.int8))
    with pytest.raises(UserError, match="takes bytes to bytes"):
        b.byte_table(x, table)
    with pytest.raises(UserError, match="a table of 256 bytes"):
        b.byte_table(b.input("y", "int8", (4,)), b.constant(np.zeros(16, np.int8)))


@pytest.mark.parametrize("shape", [(4096,), (64, 64, 3), (672, 7, 7)])
def test_arm_picks_bytes_out_of_registers(shape: tuple[int, ...]) -> None:
    x = te.placeholder(shape, "int8", name="X")
    table = te.placeholder((256,), "int8", name="T")
    f = te.function([x, table], [byte_table(x, table)], name="f")
    text = tw.build(f, "llvm -mcpu=neoverse-n1 -num-cores=1").asm
    assert "tbl\t" in text
    assert "tbx\t" in text
    assert "ldrb" not in text


@pytest.mark.parametrize(
    ("cpu", "picked"), [("cascadelake", "vpermi2w"), ("icelake-server", "vpermi2b")]
)
@pytest.mark.parametrize("shape", [(4096,), (64, 64, 4), (672, 7, 16)])
def test_avx512_picks_bytes_out_of_registers(cpu: str, picked: str, shape: tuple[int, ...]) -> None:
    x = te.placeholder(shape, "int8", name="X")
    table = te.placeholder((256,), "int8", name="T")
    f = te.function([x, table], [byte_table(x, table)], name="f")
    target = f"llvm -mtriple=x86_64-linux-gnu -mcpu={cpu} -num-cores=1"
    text = tw.build(f, target).asm
    assert picked in text or picked.replace("i2", "t2") in text
    assert "vpinsrb" not in text


def test_avx512_looks_rows_of_narrow_blocks_up_by_whole_vectors() -> None:
    b = Builder()
    x = b.input("x", "int8", (1, 144, 16, 16))
    weights = RNG.integers(-9, 9, (144, 1, 3, 3)).astype(np.int8)
    total = b.conv(x, weights, pads=[1, 1, 1, 1], groups=144, dtype="int32")
    rounded = _rounded(b, total, 0x61A80000, 36, 3)
    b.output(b.byte_table(rounded, RNG.integers(-128, 128, 256).astype(np.int8)))
    target = tw.Target.of("llvm -mtriple=x86_64-linux-gnu -mcpu=cascadelake -num-cores=1")
    model = tw.compile(b.build(), target)
    assert isinstance(model, tw.Model)
    (name,) = [k for k in model.kernels if "byte_table" in k]
    assert "vectorized(64)" in str(tw.build(model.ir(name), target).ir("scheduled"))


def test_pictures_of_any_number_are_looked_up_by_whole_registers() -> None:
    """Three channels fill none: rows of pixels do."""
    b = Builder()
    x = b.input("x", "int8", ("n", 20, 32, 3))
    table = RNG.integers(-128, 128, 256).astype(np.int8)
    b.output(b.byte_table(x, table))
    target = tw.Target.of("llvm -mcpu=neoverse-n1 -num-cores=1")
    model = tw.compile(b.build(), target)
    assert isinstance(model, tw.Model)
    (name,) = model.kernels
    built = tw.build(model.ir(name), target)
    assert "vectorized(16)" in str(built.ir("scheduled"))
    assert "tbl\t" in built.asm and "ldrb" not in built.asm
