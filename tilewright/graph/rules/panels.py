"""Constant weights of a few bits, in the order in which vectors read them."""

from __future__ import annotations

from typing import Final

import numpy as np

from tilewright.graph.ir import Array, Value
from tilewright.graph.ops.forms.matmul_panels import PANEL, in_panels, side_by_side
from tilewright.graph.ops.quantized.matmul_nbits import unpacked_bits
from tilewright.graph.rules.site import Site

#: Fewer outputs do not fill the vectors of a panel.
_FEW: Final = 16


def _in_panels(s: Site) -> Value | None:
    """matmul_nbits(x, w, …, bias) = matmul_panels(x, panels of w, …) + bias"""
    weight, scales, zeros = s.arg(1).constant, s.arg(2).constant, s.call.args[3]
    bits, block, depth = (s.attr(n) for n in ("bits", "block", "depth"))
    if weight is None or scales is None or len(weight) < _FEW:
        return None
    if zeros is not None and zeros.constant is None:
        return None
    blocks = weight.shape[1]
    stored = unpacked_bits(weight, bits)[..., :block]
    panels = s.constant(in_panels(stored, bits), s.arg(1))
    factors = s.constant(side_by_side(scales), s.arg(2))
    found = (
        None if zeros is None or zeros.constant is None else _zeros(zeros.constant, bits, blocks)
    )
    others = None if found is None else s.constant(found.astype(scales.dtype), s.arg(2))
    x, over = s.x, blocks * block - depth
    if over:
        edges = [0] * (x.ndim - 1)
        x = s.emit("pad", x, None, before=[*edges, 0], after=[*edges, over])
    total = s.emit("matmul_panels", x, panels, factors, others, bits=bits, block=block)
    outputs, width = len(weight), panels.tensor.static_shape[0] * PANEL
    # Panels are the outermost dimension, so that the rows of a tile share unpacked weights.
    total = s.emit("transpose", total, axes=[*range(1, x.ndim), 0, x.ndim])
    total = s.emit("reshape", total, shape=[*s.x.shape[:-1], width])
    if width > outputs:
        total = s.emit("slice", total, starts=[0], ends=[outputs], axes=[x.ndim - 1])
    bias = s.call.args[4]
    return total if bias is None else s.emit("add", total, bias)


def _zeros(zeros: Array, bits: int, blocks: int) -> Array:
    """Zero points, unpacked to numbers, in panels."""
    rows = unpacked_bits(zeros, bits)[:, :blocks] if zeros.dtype == np.uint8 else zeros
    return side_by_side(np.ascontiguousarray(rows))


RULES = {"matmul_nbits": (_in_panels,)}
