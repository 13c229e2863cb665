"""Products of matrices."""

from __future__ import annotations

import numpy as np

from tilewright.frontends.tflite.fixed_point import multiplier_of, result_range, scaled
from tilewright.frontends.tflite.images import activated
from tilewright.frontends.tflite.node import Node
from tilewright.frontends.tflite.products import (
    Factors,
    hybrid_dense,
    is_hybrid,
    is_integer,
    quantized_dense,
    quantized_rows,
    real_weights,
)
from tilewright.frontends.tflite.table import converts
from tilewright.graph import Dim, Value
from tilewright.support.errors import UserError


@converts("FULLY_CONNECTED")
def fully_connected(n: Node) -> Value:
    """Rows by weights outputs×inputs; dimensions before the last are one, unless they are kept."""
    if n.option("weights_format"):
        raise UserError("the weights are in an order of their own")
    x, b = n[0], n.builder
    inputs = n[1].shape[1]
    keeps = n.option("keep_num_dims")
    kept: list[Dim] = list(x.shape[:-1]) if keeps and x.ndim else []
    if x.ndim != 2 or not n.is_equal(x.shape[-1], inputs):
        x = b.reshape(x, shape=[-1, inputs])
    y = _multiplied(n, x)
    return b.reshape(y, shape=[*kept, n[1].shape[0]]) if keeps and len(kept) != 1 else y


def _multiplied(n: Node, x: Value) -> Value:
    b = n.builder
    if is_integer(n):
        return quantized_dense(n, x)
    if is_hybrid(n) and n.find_array(1) is not None:
        y = hybrid_dense(n, x, n.option("asymmetric"))
        return activated(n, b.add(y, n[2]) if n.has(2) else y)
    return activated(n, b.dense(x, real_weights(n, Factors(n, (0, 1), 0)), n.get(2)))


@converts("BATCH_MATMUL")
def batch_matmul(n: Node) -> Value:
    b = n.builder
    left = _adjoint(n, n[0]) if n.option("adj_x") else n[0]
    right = _adjoint(n, n[1]) if n.option("adj_y") else n[1]
    if not is_integer(n):
        if right.dtype.is_integer:
            rows = quantized_rows(n, left, (left.ndim - 1,), asymmetric=n.option("asymmetric"))
            return _hybrid(n, rows.stored, rows.scale, rows.zero, right)
        return b.matmul(left, right)
    hows = [n.quantization(k) for k in (0, 1)]
    if n.tensor(0).type == "int16":
        total = b.matmul(*(b.cast(v, dtype="int64") for v in (left, right)))
    else:
        total = b.matmul_integer(left, right, *(n.scalar(h.zero, n[0]) for h in hows))
    factor = multiplier_of(float(hows[0].scale * hows[1].scale) / float(n.out_quantization().scale))
    limits = result_range(n)._asdict()
    if total.dtype.bits == 64:
        return scaled(n, total, factor.shortened(), **limits, twice=False)
    return scaled(n, total, factor, **limits)


def _adjoint(n: Node, x: Value) -> Value:
    last = x.ndim - 1
    return n.builder.transpose(x, axes=(*range(last - 1), last, last - 1))


def _hybrid(n: Node, stored: Value, scale: Value, zero: Value | None, right: Value) -> Value:
    b, how = n.builder, n.quantization(1)
    total = b.cast(b.matmul_integer(stored, right), dtype="float32")
    if zero is not None:
        sums = b.sum(b.cast(right, dtype="float32"), axes=(right.ndim - 2,), keepdims=True)
        total = b.sub(total, b.mul(zero, sums))
    return b.mul(total, b.mul(scale, n.constant(np.float32(how.scale))))
