"""Products by constant weights in bytes.

    y = dense(x, w, b)
    -->
    q, s, z = quantize_rows(x)                    bytes, a scale and a zero point for each row
    t = matmul_integer(q, bytes of w)             exact sums in int32
    y = add(mul(mul(cast(sub(t, mul(z, sums of w))), s), scales of w), b)

Weights have a scale for each column and no zero point, and are quantized here once. What reads the
same rows shares their bytes. The scans of recurrent networks bring their states into bytes at every
step (`graph.recurrent`). Everything else stays in float32.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from tilewright.graph.ir import Array, Call, Value
from tilewright.graph.narrow.rewriter import Rules, Writing
from tilewright.graph.ops.quantize_rows import LEAST
from tilewright.graph.products import PRODUCTS, as_product
from tilewright.graph.recurrent import SCANS
from tilewright.ir import DType

#: Weights of a product below which it gains nothing.
_WORTH: Final = 1 << 10
#: The largest byte of a weight: -128 is none, so that both signs reach as far.
_GREATEST: Final = 127
_FLOAT32: Final = DType.of("float32")


def int8_rules() -> Rules:
    """The rules, for any machine."""
    return {**dict.fromkeys(PRODUCTS, _product), **dict.fromkeys(SCANS, _scan)}


def _product(call: Call, w: Writing) -> Sequence[Value] | None:
    product = as_product(call)
    columns = None if product is None else product.columns
    if product is None or columns is None or columns.size < _WORTH:
        return None
    what = "rows in bytes" if product.turned else "columns in bytes"
    weights = w.once(what, product.weight, lambda v: _quantized(columns, v.name, w))
    if not weights:
        return None
    stored, sums, scales = weights
    rows, scale, zero = w.once("bytes", product.x, lambda x: w.emit("quantize_rows", x))
    total = w.emit("matmul_integer", rows, stored)
    centred = w.emit("sub", total, w.emit("mul", zero, sums))
    real = w.emit("mul", w.emit("cast", centred, dtype=_FLOAT32), scale)
    result = w.emit("mul", real, _scaled(scales, product.factor, w))
    if product.addend is not None:
        result = w.emit("add", result, product.scaled_addend(w))
    return [result]


def _quantized(columns: Array, name: str, w: Writing) -> Sequence[Value]:
    """Constants: bytes, their sums and scales for each column; nothing where there are none."""
    found = quantized_columns(columns)
    if found is None:
        return ()
    stored, scales = found
    sums = stored.sum(axis=0, dtype=np.int32)
    return w.constant(stored, name=name), w.constant(sums, name="sums"), w.constant(scales)


def _scaled(scales: Value, factor: float, w: Writing) -> Value:
    assert scales.constant is not None
    return scales if factor == 1 else w.constant(scales.constant * np.float32(factor))


def _scan(call: Call, w: Writing) -> Sequence[Value] | None:
    products, weight, *others, scales = call.args
    array = None if weight is None else weight.constant
    if products is None or products.dtype is not _FLOAT32 or scales is not None or array is None:
        return None
    found = quantized_columns(array) if array.size >= _WORTH else None
    if weight is None or found is None:
        return None
    stored, factors = w.constant(found[0], name=weight.name), w.constant(found[1], name="scales")
    return w.emit_all(call.op, [products, stored, *others, factors], call.attrs)


def quantized_columns(weights: Array) -> tuple[Array, Array] | None:
    """Weights …×K×N as bytes, and the scale of each column, …×N; None where they are not finite:
    these have no bytes that stand for them."""
    greatest = np.abs(weights).max(axis=-2, initial=0)
    if not np.isfinite(greatest).all():
        return None
    scales = np.where(greatest < LEAST, 1, greatest / _GREATEST).astype(np.float32)
    stored = np.rint(weights / scales[..., None, :]).astype(np.int8)
    return np.ascontiguousarray(stored), scales
