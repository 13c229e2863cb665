"""How sums of products are cut, and what is left of that in the loops that run."""

from __future__ import annotations

import tilewright as tw
from tilewright import te
from tilewright.ir import Alloc, Buffer, Function, walk
from tilewright.tensor import ops


def lowered(inputs: list[te.Tensor], output: te.Tensor, target: str) -> Function:
    function = te.function(inputs, [output], name="f")
    return tw.build(function, f"llvm -mcpu={target} -num-cores=1").ir("compact_buffers")


def allocated(function: Function, name: str) -> Buffer:
    allocs = [s for s in walk(function.body) if isinstance(s, Alloc)]
    (found,) = [b for s in allocs for b in s.buffers if b.name.startswith(name)]
    return found


def test_strips_of_an_image_are_padded_by_themselves_where_the_last_one_is_shorter() -> None:
    x, w = te.placeholder((1, 8, 56, 56, 16), name="X"), te.placeholder((2, 8, 3, 3, 16, 16))
    function = lowered([x, w], ops.conv2d_blocked(x, w, strides=2, pads=1), "neoverse-n1")
    rows = int(allocated(function, "X_pad").shape[2].value)  # type: ignore[union-attr]
    steps = (rows - 1) // 2
    assert rows < 28 and 28 % steps
