"""Products of two quantized tensors that are both computed, such as those in attention.

    y = matmul(dequantize(a, s, p), dequantize(b, r, q))
    -->
    y = mul(cast(matmul_integer(a, b, p, q)), s * r)

Attention whose scores are bytes takes several kernels then: the memory between them holds a quarter
of what scores in floats would take, and bytes are multiplied four at a time. Matrices of unknown
size stay in floats, whose kernels are fast without knowing it.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from tilewright.graph.ir import Value
from tilewright.graph.ir.types import known_dim
from tilewright.graph.passes.quantized.dequantized import Bytes, bytes_of
from tilewright.graph.rules.site import Site
from tilewright.ir import DType

_FLOAT32, _INT32 = DType.of("float32"), DType.of("int32")
#: Sums of fewer terms do not fill the instructions for bytes.
_FEW: Final = 8
#: Sums of more products of bytes than this might overflow; those of floats would not.
_MANY: Final = _INT32.max_value // 255**2


def product_of_two(s: Site) -> Value | None:
    """The rule for `matmul`."""
    if s.attr("transpose_a") or s.attr("dtype") is not None or s.x.ndim < 2 or s.arg(1).ndim < 2:
        return None
    a, b = bytes_of(s, s.x), bytes_of(s, s.arg(1))
    sizes = [known_dim(d) for d in (*s.x.shape[-2:], s.result.shape[-1])]
    if a is None or b is None or None in sizes or not _FEW <= (sizes[1] or 0) <= _MANY:
        return None
    right = _transposed(s, b.value) if s.attr("transpose_b") else b.value
    total = s.emit("matmul_integer", a.value, right, _zero(s, a), _zero(s, b))
    factor = a.scale.astype(np.float32) * b.scale.astype(np.float32)
    real = s.emit("cast", total, dtype=_FLOAT32)
    return s.emit("mul", real, s.constant(np.asarray(factor, np.float32)))


def _transposed(s: Site, x: Value) -> Value:
    rank = x.ndim
    return s.emit("transpose", x, axes=(*range(rank - 2), rank - 1, rank - 2))


def _zero(s: Site, x: Bytes) -> Value | None:
    return s.constant(np.array(x.zero, x.value.dtype.numpy)) if x.zero else None
