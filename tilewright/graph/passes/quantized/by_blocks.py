"""Products by quantized weights, in blocks along the summed axis, of other factors in floats.

y = matmul(x, dequantize(w, scales of blocks))   -->   y = matmul_nbits(x, packed w, scales)
"""

from __future__ import annotations

from typing import Final

import numpy as np

from tilewright.graph.ir import Array, Value
from tilewright.graph.ir.types import dtype_of
from tilewright.graph.ops.quantized.matmul_nbits import packed_bits
from tilewright.graph.rules import Rule
from tilewright.graph.rules.site import Site
from tilewright.graph.sizes.axes import axis_of


def is_plain_gemm(s: Site) -> bool:
    """Whether neither the first factor is transposed nor the product or the bias scaled."""
    return not s.attr("transpose_a") and s.attr("alpha") == 1 and s.attr("beta") == 1


def with_bias(s: Site, real: Value | None) -> Value | None:
    """A product, where there is one, plus the bias of the call."""
    bias = s.call.args[2]
    return real if real is None or bias is None else s.emit("add", real, bias)


def matmul_by_blocks(s: Site) -> Value | None:
    if s.attr("transpose_a") or s.attr("dtype") is not None:
        return None
    return _by_blocks(s, s.attr("transpose_b"))


def gemm_by_blocks(s: Site) -> Value | None:
    return with_bias(s, _by_blocks(s, s.attr("transpose_b"))) if is_plain_gemm(s) else None


def dense_by_blocks(s: Site) -> Value | None:
    return with_bias(s, _by_blocks(s, is_transposed=True))


def _by_blocks(s: Site, is_transposed: bool) -> Value | None:
    """The product by weights that are dequantized in blocks along the summed axis."""
    call = s.made_by(s.arg(1), "dequantize")
    if call is None or not call.attrs["block"] or s.x.dtype is not s.arg(1).dtype:
        return None
    stored, scales, zeros = (None if a is None else a.constant for a in call.args)
    if stored is None or scales is None or (zeros is None) != (call.args[2] is None):
        return None
    depth, dtype = 1 if is_transposed else 0, dtype_of(stored.dtype)
    if stored.ndim != 2 or axis_of(call.attrs["axis"], 2) != depth or s.x.is_constant:
        return None
    bits, block = dtype.bits, call.attrs["block"]
    if bits not in (2, 4, 8) or not dtype.is_integer or block * bits % 8:
        return None
    half = 0 if dtype.min_value == 0 else 2 ** (bits - 1)
    given = np.zeros_like(scales) if zeros is None else zeros
    rows, factors, others = (a if is_transposed else a.T for a in (stored, scales, given))
    shifted = (rows.astype(np.int16) + half).astype(np.uint8)
    packed = packed_bits(_in_blocks(shifted, block), bits)
    middle = (others.astype(np.float32) + half).astype(scales.dtype)
    parameters = [s.constant(np.ascontiguousarray(a)) for a in (packed, factors, middle)]
    attrs = {"depth": rows.shape[1], "bits": bits, "block": block}
    return s.emit("matmul_nbits", s.x, *parameters, **attrs)


def _in_blocks(rows: Array, block: int) -> Array:
    """Rows N×K as N×blocks×block, padded with zeros."""
    count, depth = rows.shape
    blocks = -(-depth // block)
    full = np.zeros((count, blocks * block), rows.dtype)
    full[:, :depth] = rows
    return full.reshape(count, blocks, block)


BY_BLOCKS: Final[dict[str, tuple[Rule, ...]]] = {
    "matmul": (matmul_by_blocks,),
    "gemm": (gemm_by_blocks,),
    "dense": (dense_by_blocks,),
}
