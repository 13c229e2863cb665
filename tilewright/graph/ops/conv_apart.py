"""Transposed convolutions whose windows lie side by side: products by pixel, then put in place.

    y = conv_transpose(x, w, strides=[2, 2])               w: C×O×2×2
    -->
    p = conv_blocked(x, w as 2·2·O×C×1×1)                  a pixel gives all of its window
    y = p as N×2×2×(O/b)×H×W×b, turned to N×(O/b)×H×2×W×2×b, which is N×(O/b)×2H×2W×b

Windows of other operators overlap, or leave gaps: their products are collected one by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from math import prod
from typing import Any

from tilewright.graph.builder import Builder
from tilewright.graph.ir import Call
from tilewright.graph.layouts import PLAIN, Blocking, Form, channels_of, count
from tilewright.graph.naturals import simplify_size
from tilewright.graph.ops.conv_transpose import conv_transpose
from tilewright.graph.reduced import accumulator
from tilewright.graph.types import TensorType, known_dim

#: The shares of what a machine can do that the products come to, collected one by one and by tiles.
_COLLECTED, _BY_TILES = 0.05, 0.6


@conv_transpose.layouts
def conv_transpose_layouts(blocking: Blocking, call: Call, out: TensorType) -> Iterator[Form]:
    """Blocks of channels, where windows lie side by side and weights are packed once."""
    x = call.args[0]
    if x is None or not _lies_apart(call) or accumulator(x.dtype) is not x.dtype:
        return
    for block in blocking.blocks(out):
        if (channels_of(out) or 0) % block:
            continue
        for inner in blocking.blocks(x.type):
            if (channels_of(x.type) or 0) % inner == 0:
                cost = _products(blocking, call, out, _BY_TILES)
                yield Form((inner, PLAIN, PLAIN), block, cost, _emit(inner, block))


@conv_transpose.cost
def conv_transpose_cost(blocking: Blocking, call: Call, out: TensorType) -> float:
    """What the plain form costs."""
    return _products(blocking, call, out, _COLLECTED)


def _products(blocking: Blocking, call: Call, out: TensorType, share: float) -> float:
    x, weight, _ = call.args
    assert x is not None and weight is not None
    return blocking.products(count(x.shape) * count(weight.shape[1:]), out.dtype, share)


def _lies_apart(call: Call) -> bool:
    """Whether windows of constant weights follow each other without gaps, and nothing is cut."""
    _, weight, bias = call.args
    assert weight is not None
    if not weight.is_constant or (bias is not None and not bias.is_constant):
        return False
    kernel = [known_dim(k) for k in weight.shape[2:]]
    rank = len(kernel)
    steps, gaps = (call.attrs[name] or (1,) * rank for name in ("strides", "dilations"))
    cut = (*call.attrs["pads"], *call.attrs["output_pads"])
    whole = list(steps) == kernel and all(d == 1 for d in gaps)
    return whole and call.attrs["groups"] == 1 and all(known_dim(p) == 0 for p in cut)


def _emit(inner: int, block: int) -> Any:
    def emit(builder: Builder, args: Sequence[Any]) -> Any:
        x, weight, bias = args
        channels, outputs, *kernel = (int(known_dim(d) or 0) for d in weight.shape)
        rank, places = len(kernel), prod(kernel)
        # The places of a window come before its channels, so that blocks stay whole.
        axes = [*range(2, 2 + rank), 1, 0]
        turned = builder.emit("transpose", weight, axes=axes)
        shape = [places * outputs, channels, *(1,) * rank]
        rows = builder.emit("reshape", turned, shape=shape)
        packed = builder.emit("pack_conv_weights", rows, in_block=inner, out_block=block)
        repeated = None if bias is None else builder.emit("concat", *[bias] * places, axis=0)
        if repeated is not None:
            repeated = builder.emit("pack_channels", repeated, block=block)
        products = builder.emit("conv_blocked", x, packed, repeated)
        return _put_in_place(builder, products, kernel, outputs // block)

    return emit


def _put_in_place(builder: Builder, products: Any, kernel: Sequence[int], blocks: int) -> Any:
    """N×(kernel·blocks)×spatial×b, where each pixel holds its window, as an image."""
    rank = len(kernel)
    batch, _, *spatial, block = products.shape
    apart = builder.emit("reshape", products, shape=[batch, *kernel, blocks, *spatial, block])
    pairs = [(2 + rank + n, 1 + n) for n in range(rank)]
    axes = [0, 1 + rank, *chain.from_iterable(pairs), 2 + 2 * rank]
    turned = builder.emit("transpose", apart, axes=axes)
    extents = [simplify_size(e * k) for e, k in zip(spatial, kernel, strict=True)]
    return builder.emit("reshape", turned, shape=[batch, blocks, *extents, block])
