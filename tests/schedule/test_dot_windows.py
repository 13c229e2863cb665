"""Windows over single channels of bytes, by dot products lane by lane."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.codegen.assembly import BasicBlock, functions_of
from tests.codegen.emulation import run_anywhere
from tilewright.graph import Builder, KernelTable, passes
from tilewright.schedule import Schedule
from tilewright.schedule.rules.reductions.dot_windows import DOT_WINDOWS

Array = np.ndarray[Any, Any]
FILL = -7
TARGET = tw.Target.of("llvm -mcpu=neoverse-n1 -num-cores=2")


def _kernel(
    size: tuple[int, int],
    window: tuple[int, int],
    *,
    stride: int = 1,
    dilation: int = 1,
    pads: tuple[int, ...] = (0, 0, 0, 0),
    width: int = 16,
    target: tw.Target = TARGET,
) -> tw.Function:
    """A depthwise convolution of bytes in a graph, with a sum behind it."""
    b = Builder()
    x = b.input("x", "i8", (1, 2, *size, width))
    weight = np.ones((2, *window, width), "i1")
    sums = b.depthwise_blocked(
        x,
        weight,
        strides=[stride] * 2,
        dilations=[dilation] * 2,
        pads=[*pads],
        dtype="int32",
        fill=FILL,
    )
    b.output(b.add(sums, np.full((1, 2, 1, 1, width), 3, "i4")))
    (binding,) = passes.fuse(target)(b.build()).main.body
    return KernelTable()(binding).function


def _wanted(x: Array, w: Array, bias: Array, stride: int, dilation: int, pads: Any) -> Array:
    top, left, bottom, right = pads
    edges = ((0, 0), (0, 0), (top, bottom), (left, right), (0, 0))
    x = np.pad(x.astype("i4"), edges, constant_values=FILL)
    rows, columns = w.shape[1:3]
    high, wide = (
        (size - (window - 1) * dilation - 1) // stride + 1
        for size, window in zip(x.shape[2:4], (rows, columns), strict=True)
    )
    total = np.zeros((*x.shape[:2], high, wide, x.shape[-1]), "i4") + bias
    for r in range(rows):
        for q in range(columns):
            at = x[:, :, r * dilation :, q * dilation :]
            part = at[:, :, : high * stride : stride, : wide * stride : stride]
            total += part * w[None, :, r, q, None, None].astype("i4")
    return total


CASES: list[Any] = [
    ((9, 20), (3, 3), {"pads": (1, 1, 1, 1)}),
    ((9, 21), (3, 3), {"pads": (0, 0, 1, 1), "stride": 2}),
    ((12, 17), (5, 5), {"pads": (2, 2, 2, 2)}),
    ((13, 17), (5, 5), {"pads": (1, 2, 2, 1), "stride": 2}),
    ((11, 12), (3, 3), {"pads": (2, 2, 2, 2), "dilation": 2}),
    ((8, 9), (3, 3), {"width": 32}),
    ((12, 6), (4, 1), {}),
    ((5, 33), (1, 7), {"pads": (0, 3, 0, 3)}),
    ((9, 9), (8, 2), {"pads": (4, 1, 3, 0)}),
]


@pytest.mark.parametrize(("size", "window", "how"), CASES)
def test_sums_are_the_same(
    size: Any, window: Any, how: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    module = tw.build(_kernel(size, window, **how), TARGET)
    width = how.get("width", 16)
    chance = np.random.default_rng(0)
    x = chance.integers(-128, 128, (1, 2, *size, width)).astype("i1")
    w = chance.integers(-128, 128, (2, *window, width)).astype("i1")
    bias = chance.integers(-999, 999, (1, 2, 1, 1, width)).astype("i4")
    pads = how.get("pads", (0, 0, 0, 0))
    wanted = _wanted(x, w, bias, how.get("stride", 1), how.get("dilation", 1), pads)
    got = np.zeros_like(wanted)
    run_anywhere(module, monkeypatch, x, w, bias, got)
    np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize(("size", "window", "how"), CASES)
def test_the_rule_is_for_them(size: Any, window: Any, how: dict[str, Any]) -> None:
    kernel = _kernel(size, window, **how)
    text = str(tw.build(kernel, TARGET).ir("scheduled"))
    # Rows of the window are neighbours in the image, and there are several; windows overlap.
    overlap = window[0] * window[1] / how.get("stride", 1) ** 2
    is_for = window[0] > 1 and "dilation" not in how and overlap >= 4
    assert ("arm.sdot_lanes" in text) == is_for


@pytest.mark.parametrize(
    ("size", "window", "pixels"), [(28, 3, 14), (14, 3, 14), (7, 3, 7), (14, 5, 7)]
)
def test_sums_and_what_they_read_stay_in_registers(size: int, window: int, pixels: int) -> None:
    pads = (window // 2,) * 4
    kernel = _kernel((size, size), (window, window), pads=pads)
    plan = DOT_WINDOWS.planned(Schedule(kernel), "depthwise", TARGET)
    assert plan is not None and plan.pixels == pixels
    blocks = [(f, b) for f in functions_of(tw.build(kernel, TARGET).asm) for b in f.blocks]
    function, block = max(blocks, key=lambda found: _dots(found[1]))
    groups = -(-window // 4)
    assert _dots(block) in (pixels * window * groups, 4 * pixels * window * groups)
    # What leaves the registers is stored once.
    stores = [text for text in function.on_stack(block) if text.startswith("st")]
    assert len(stores) * window * groups <= _dots(block)


def _dots(block: BasicBlock) -> int:
    return sum(i.name == "sdot" for i in block.instructions)


def test_machines_without_the_instruction_multiply_byte_by_byte() -> None:
    other = tw.Target.of("llvm -mcpu=cortex-a72 -num-cores=2")
    kernel = _kernel((9, 9), (3, 3), target=other)
    assert DOT_WINDOWS.planned(Schedule(kernel), "depthwise", other) is None
    assert "sdot" not in tw.build(kernel, other).asm
