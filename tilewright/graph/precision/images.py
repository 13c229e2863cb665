"""Scales that are computed at run time, one for each image."""

from __future__ import annotations

from typing import Final

import numpy as np

from tilewright.graph.ir import Value
from tilewright.graph.ops.forms.quantize_rows import LEAST
from tilewright.graph.precision.rewriter import Writing

#: Operators whose results are never negative, and those that are if no operand is negative.
_NONNEGATIVE: Final = frozenset(
    ["relu", "sigmoid", "coarse_sigmoid", "hard_sigmoid", "exp", "abs", "softmax"]
)
_KEEPING_SIGN: Final = frozenset(["max_pool", "avg_pool", "concat", "reshape", "add", "slice"])
#: Most calls between a value and an operator whose results are never negative.
_BACK: Final = 6


def image_scales(x: Value, most: float, w: Writing) -> tuple[Value, Value]:
    """The factor that scales the greatest magnitude of each image to `most`, and its inverse."""
    size = x if is_nonnegative(x, w) else w.emit("abs", x)
    # Over pixels first: channels may be in blocks.
    greatest = w.emit("max", size, axes=tuple(range(2, x.ndim)), keepdims=True)
    greatest = w.emit("max", greatest, axes=(1,), keepdims=True)
    factor = w.emit("div", np.float32(most), w.emit("maximum", greatest, np.float32(LEAST)))
    return factor, w.emit("mul", greatest, np.float32(1 / most))


def is_nonnegative(value: Value, w: Writing, back: int = _BACK) -> bool:
    """Whether it is known that no element is negative."""
    call = w.makers.get(value)
    if call is None or not back:
        return False
    if call.op.name == "clip":
        low = None if call.args[1] is None else call.args[1].constant
        return low is not None and bool((low >= 0).all())
    operands = [a for a in call.args if a is not None]
    keeps = call.op.name in _KEEPING_SIGN and all(is_nonnegative(a, w, back - 1) for a in operands)
    return keeps or call.op.name in _NONNEGATIVE
