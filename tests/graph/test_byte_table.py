"""Functions of bytes by tables: what they give, in which layouts, and by which instructions."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tests.graph.harness import check
from tilewright import te
from tilewright.graph import Builder
from tilewright.ops import byte_table
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


def test_other_types_are_refused() -> None:
    b = Builder()
    x, table = b.input("x", "int16", (4,)), b.constant(np.zeros(256, np.int8))
    with pytest.raises(UserError, match="takes bytes to bytes"):
        b.byte_table(x, table)
    with pytest.raises(UserError, match="a table of 256 bytes"):
        b.byte_table(b.input("y", "int8", (4,)), b.constant(np.zeros(16, np.int8)))


def test_arm_picks_bytes_out_of_registers() -> None:
    x = te.placeholder((4096,), "int8", name="X")
    table = te.placeholder((256,), "int8", name="T")
    f = te.function([x, table], [byte_table(x, table)], name="f")
    text = tw.build(f, "llvm -mcpu=neoverse-n1 -num-cores=1").asm
    assert "tbl\t" in text
    assert "tbx\t" in text
    assert "ldrb" not in text
