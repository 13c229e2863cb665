"""Softmax and other normalisations."""

from __future__ import annotations

import numpy as np

from tilewright.frontends.tflite.fixed_point import (
    INT32,
    is_bytes,
    quantized,
    real,
)
from tilewright.frontends.tflite.images import activated
from tilewright.frontends.tflite.node import Node
from tilewright.frontends.tflite.table import converts
from tilewright.graph import Value
from tilewright.ir import as_expr
from tilewright.support.errors import UserError

_MOST_RADIUS = 64


@converts("SOFTMAX")
def softmax(n: Node) -> Value:
    beta = n.option("beta")
    if n.is_quantized and is_bytes(n[0]):
        return _softmax_of_bytes(n, beta)
    x = real(n, 0)
    x = x if beta == 1 else n.builder.mul(x, n.scalar(beta, x))
    return quantized(n, n.builder.softmax(x, axis=-1))


def _softmax_of_bytes(n: Node, beta: float) -> Value:
    """Exponentials from a table, by the distance of each element from the greatest."""
    b, x, out = n.builder, n[0], n.out_quantization()
    steps = np.arange(255, -1, -1, dtype=np.float32)
    table = np.exp(np.float32(-n.quantization(0).scale * np.float32(beta)) * steps)
    wide = b.cast(x, dtype=INT32)
    apart = b.sub(wide, b.max(wide, axes=[x.ndim - 1], keepdims=True))
    powers = b.take(
        n.constant(table.astype(np.float32)), b.add(apart, n.constant(255, INT32)), mode="hold"
    )
    total = b.sum(powers, axes=[x.ndim - 1], keepdims=True)
    inverse = b.div(n.scalar(1, powers), b.mul(total, n.scalar(out.scale, powers)))
    stored = b.add(b.round_away(b.mul(powers, inverse)), n.scalar(out.zero, powers))
    dtype = n.out_dtype()
    held = b.clip(stored, n.scalar(dtype.min_value, stored), n.scalar(dtype.max_value, stored))
    return b.cast(held, dtype=dtype)


@converts("LOG_SOFTMAX")
def log_softmax(n: Node) -> Value:
    return quantized(n, n.builder.log_softmax(real(n, 0), axis=-1))


@converts("L2_NORMALIZATION")
def l2_normalization(n: Node) -> Value:
    b, x = n.builder, real(n, 0)
    squares = b.sum(b.mul(x, x), axes=[x.ndim - 1], keepdims=True)
    norm = b.maximum(b.sqrt(squares), n.scalar(1e-6, x))
    return quantized(n, activated(n, b.div(x, norm)))


@converts("LOCAL_RESPONSE_NORMALIZATION")
def lrn(n: Node) -> Value:
    """x · (bias + alpha · squares)**-beta, over `radius` channels before and one fewer after."""
    b, x = n.builder, n[0]
    radius, last = n.option("radius"), n[0].ndim - 1
    if not 1 <= radius <= _MOST_RADIUS:
        raise UserError(f"channels up to {radius} apart are compared")
    pads = [[0] * last + [r] for r in (radius, radius - 1)]
    squares = b.pad(b.mul(x, x), before=pads[0], after=pads[1])
    parts = [
        b.slice(squares, starts=[k], ends=[as_expr(x.shape[last]) + k], axes=[last])
        for k in range(2 * radius)
    ]
    total = parts[0]
    for part in parts[1:]:
        total = b.add(total, part)
    scale = b.add(b.mul(total, n.scalar(n.option("alpha"), x)), n.scalar(n.option("bias"), x))
    return b.mul(x, b.pow(scale, n.scalar(-n.option("beta"), x)))
