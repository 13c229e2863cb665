"""Convolutions, dense layers and products."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.frontends.common.images import SymmetricWindow
from tilewright.frontends.mxnet.node import Node, as_dim
from tilewright.frontends.mxnet.table import converts
from tilewright.graph import Value, product
from tilewright.support.errors import UserError


def read_window(n: Node, rank: int) -> SymmetricWindow:
    """The window of a node; without a kernel if that is not given."""
    kernel: list[int] = n.integers("kernel", [])
    if kernel and len(kernel) != rank:
        raise UserError(f"a kernel of {kernel} for {rank} spatial axes")
    strides, dilations = _each(n, "stride", rank, 1), _each(n, "dilate", rank, 1)
    return SymmetricWindow(kernel, strides, dilations, _each(n, "pad", rank, 0)).checked()


def _each(n: Node, name: str, rank: int, default: int) -> list[int]:
    found: list[int] = n.integers(name, None) or [default] * rank
    if len(found) != rank:
        raise UserError(f"{name} is {found} for {rank} spatial axes")
    return found


def image_rank(n: Node, x: Value) -> int:
    """How many spatial axes there are; channels must come before them."""
    layout = n.text("layout", "NC")
    if not layout.startswith("NC"):
        raise UserError(f"the layout {layout[:20]} is not supported", remedy="export with NCHW")
    if x.ndim < 3:
        raise UserError(f"{x} is no image")
    return x.ndim - 2


@converts("Convolution", "Convolution_v1")
def convolution(n: Node) -> Value:
    x, weight = n[0], n[1]
    window = read_window(n, image_rank(n, x))
    return n.builder.conv(
        x,
        weight,
        None if n.flag("no_bias") else n[2],
        strides=window.strides,
        pads=window.both_pads,
        dilations=window.dilations,
        groups=n.integer("num_group", 1),
    )


@converts("Deconvolution")
def deconvolution(n: Node) -> Value:
    x, weight = n[0], n[1]
    rank = image_rank(n, x)
    window = read_window(n, rank)
    pads, extra = window.pads, n.integers("adj", None) or [0] * rank
    target: list[int] | None = n.integers("target_shape", None)
    if target and any(target):
        reach = [
            (n.extent(x, k + 2) - 1) * s + (e - 1) * d + 1
            for k, (e, s, d) in enumerate(
                zip(window.kernel, window.strides, window.dilations, strict=True)
            )
        ]
        cut = [r - t for r, t in zip(reach, target, strict=True)]
        if min(cut) < 0:
            raise UserError(f"the target_shape {target} is larger than {reach}")
        pads, extra = [(c + 1) // 2 for c in cut], [c % 2 for c in cut]
    return n.builder.conv_transpose(
        x,
        weight,
        None if n.flag("no_bias", True) else n[2],
        strides=window.strides,
        pads=[*pads, *pads],
        dilations=window.dilations,
        groups=n.integer("num_group", 1),
        output_pads=extra,
    )


@converts("FullyConnected")
def fully_connected(n: Node) -> Value:
    b, x, weight = n.builder, n[0], n[1]
    lead = list(x.shape[:-1])
    if n.flag("flatten", True):
        lead = [x.shape[0]]
        x = b.reshape(x, shape=[x.shape[0], as_dim(product(x.shape[1:]))])
    rows = x if x.ndim == 2 else b.reshape(x, shape=[as_dim(product(lead)), x.shape[-1]])
    made = b.matmul(rows, weight, transpose_b=True)
    if not n.flag("no_bias"):
        made = b.add(made, n[2])
    return made if len(lead) == 1 else b.reshape(made, shape=[*lead, weight.shape[0]])


@converts("dot")
def dot(n: Node) -> Value:
    """The product over the last axis of one and the first of the other."""
    b, x, y = n.builder, n[0], n[1]
    if n.flag("transpose_a"):
        x = b.transpose(x, axes=[*range(1, x.ndim), 0])
    if n.flag("transpose_b"):
        y = b.transpose(y, axes=[y.ndim - 1, *range(y.ndim - 1)])
    if x.ndim == 0 or y.ndim == 0:
        raise UserError("a product of numbers without dimensions")
    lead, tail = list(x.shape[:-1]), list(y.shape[1:])
    if x.ndim <= 2 and y.ndim <= 2:
        return b.matmul(x, y)
    rows = b.reshape(x, shape=[as_dim(product(lead)), x.shape[-1]])
    columns = b.reshape(y, shape=[y.shape[0], as_dim(product(tail))])
    return b.reshape(b.matmul(rows, columns), shape=[*lead, *tail])


@converts("batch_dot", "_linalg_gemm2", "linalg_gemm2")
def batch_dot(n: Node) -> Value:
    made = n.builder.matmul(
        n[0], n[1], transpose_a=n.flag("transpose_a"), transpose_b=n.flag("transpose_b")
    )
    factor = n.real("alpha", 1.0)
    return made if factor == 1.0 else n.builder.mul(made, n.scalar(factor, made))


# ---- attention, as GluonNLP's models write it ---------------------------------------------------


def _heads(n: Node, x: Value) -> tuple[Value, Value, Value]:
    """Queries, keys and values, each (N·heads)×T×d, out of T×N×(heads·3·d)."""
    b: Any = n.builder
    heads = n.integer("heads")
    width = n.extent(x, 2)
    if heads < 1 or width % (3 * heads):
        raise UserError(f"{heads} heads in {width} elements")
    length, batch, size = x.shape[0], x.shape[1], width // (3 * heads)
    split = b.reshape(x, shape=[length, as_dim(batch * heads), 3, size])
    parts = b.split(b.transpose(split, axes=[2, 1, 0, 3]), sizes=[1, 1, 1], axis=0)
    query, key, value = (b.squeeze(p, axes=[0]) for p in parts)
    return query, key, value


@converts("_contrib_interleaved_matmul_selfatt_qk")
def attention_scores(n: Node) -> Value:
    query, key, _ = _heads(n, n[0])
    scale = np.sqrt(1 / n.extent(query, 2))
    scaled = n.builder.mul(query, n.scalar(scale, query))
    return n.builder.matmul(scaled, key, transpose_b=True)


@converts("_contrib_interleaved_matmul_selfatt_valatt")
def attention_values(n: Node) -> Value:
    b: Any = n.builder
    _, _, value = _heads(n, n[0])
    made = b.transpose(b.matmul(n[1], value), axes=[1, 0, 2])
    width = n.extent(n[0], 2) // 3
    return b.reshape(made, shape=[n[0].shape[0], n[0].shape[1], width])


@converts("_contrib_div_sqrt_dim")
def div_sqrt_dim(n: Node) -> Value:
    return n.builder.mul(n[0], n.scalar(n.extent(n[0], n[0].ndim - 1) ** -0.5, n[0]))
