"""Blocks of pixels that become channels or batches, and back."""

from __future__ import annotations

import math

from tilewright.frontends.tflite.images import on_images
from tilewright.frontends.tflite.node import Node
from tilewright.frontends.tflite.table import converts
from tilewright.graph import Value
from tilewright.ir import as_expr


@converts("DEPTH_TO_SPACE")
def depth_to_space(n: Node) -> Value:
    block = n.option("block_size")
    return on_images(n, n[0], lambda x: n.builder.depth_to_space(x, block=block, mode="DCR"))


@converts("SPACE_TO_DEPTH")
def space_to_depth(n: Node) -> Value:
    block = n.option("block_size")
    return on_images(n, n[0], lambda x: n.builder.space_to_depth(x, block=block))


@converts("SPACE_TO_BATCH_ND")
def space_to_batch(n: Node) -> Value:
    x, b = n[0], n.builder
    blocks, around = n.numbers(1), n.dims(2)
    m = len(blocks)
    rest = [0] * (x.ndim - 1 - m)
    zero = n.scalar(n.out_quantization().zero, x) if n.is_quantized else None
    x = b.pad(x, zero, before=[0, *around[::2], *rest], after=[0, *around[1::2], *rest])
    cut = [d for e, k in zip(x.shape[1 : m + 1], blocks, strict=True) for d in (as_expr(e) // k, k)]
    y = b.reshape(x, shape=[x.shape[0], *cut, *x.shape[m + 1 :]])
    inner = [2 * k + 2 for k in range(m)]
    outer = [2 * k + 1 for k in range(m)]
    y = b.transpose(y, axes=[*inner, 0, *outer, *range(2 * m + 1, y.ndim)])
    batch = as_expr(x.shape[0]) * math.prod(blocks)
    return b.reshape(y, shape=[batch, *cut[::2], *x.shape[m + 1 :]])


@converts("BATCH_TO_SPACE_ND")
def batch_to_space(n: Node) -> Value:
    x, b = n[0], n.builder
    blocks, crops = n.numbers(1), n.dims(2)
    m = len(blocks)
    batch = as_expr(x.shape[0]) // math.prod(blocks)
    y = b.reshape(x, shape=[*blocks, batch, *x.shape[1:]])
    order = [d for k in range(m) for d in (m + 1 + k, k)]
    y = b.transpose(y, axes=[m, *order, *range(2 * m + 1, y.ndim)])
    joined = [as_expr(e) * k for e, k in zip(x.shape[1 : m + 1], blocks, strict=True)]
    y = b.reshape(y, shape=[batch, *joined, *x.shape[m + 1 :]])
    ends = [e - c for e, c in zip(joined, crops[1::2], strict=True)]
    return b.slice(y, starts=crops[::2], ends=ends, axes=list(range(1, m + 1)))
