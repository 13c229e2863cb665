"""Columns of sliding blocks combined into images; overlapping elements are added."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from tilewright.graph.ir import Array, Value
from tilewright.graph.ir.attributes import Dims, Ints
from tilewright.graph.ir.op import op
from tilewright.graph.ir.types import TensorType, Type, known_dim
from tilewright.graph.ops.elementwise.elementwise import require_kind
from tilewright.graph.sizes.agreement import require_equal, require_multiple
from tilewright.graph.sizes.axes import tidy
from tilewright.ir import Expr, as_expr, const
from tilewright.support.errors import UserError
from tilewright.tensor import te


@op
def col2im(
    x: Value,
    *,
    image: Dims,
    block: Ints,
    strides: Ints | None = None,
    dilations: Ints | None = None,
    pads: Ints | None = None,
) -> Type:
    """N×(C·block)×columns to N×C×image; `pads` stand before each dimension, then after."""
    require_kind("number", x)
    rank = len(block)
    parts = {"strides": strides, "dilations": dilations}
    for name, values in parts.items():
        if values is not None and (len(values) != rank or min(values) < 1):
            raise UserError(f"{name} are {list(values)} for blocks {list(block)}")
    if x.ndim != 3 or len(image) != rank or (pads is not None and len(pads) != 2 * rank):
        raise UserError(f"{x} cannot be put together to images of {rank} dimensions")
    require_multiple(x.shape[1], math.prod(block), "rows of blocks")
    wanted = _product(_counts(image, block, strides, dilations, pads))
    require_equal(x.shape[2], wanted, "columns and blocks")
    return x.tensor.with_shape([x.shape[0], x.shape[1] // math.prod(block), *image])


def _counts(
    image: Dims, block: Ints, strides: Ints | None, dilations: Ints | None, pads: Ints | None
) -> list[Expr]:
    """How many blocks there are along each dimension."""
    rank = len(block)
    steps, gaps = strides or (1,) * rank, dilations or (1,) * rank
    around = [sum((pads or (0,) * 2 * rank)[k::rank]) for k in range(rank)]
    return [
        tidy((as_expr(n) + around[k] - gaps[k] * (block[k] - 1) - 1) // steps[k] + 1)
        for k, n in enumerate(image)
    ]


def _product(extents: list[Expr]) -> Expr:
    result: Expr = const(1)
    for extent in extents:
        result = result * extent
    return tidy(result)


@col2im.reference
def col2im_reference(
    x: Array,
    *,
    image: Ints,
    block: Ints,
    strides: Ints | None,
    dilations: Ints | None,
    pads: Ints | None,
) -> Array:
    rank = len(block)
    steps, gaps = strides or (1,) * rank, dilations or (1,) * rank
    before = (pads or (0,) * 2 * rank)[:rank]
    counts = [known_dim(c) or 0 for c in _counts(image, block, strides, dilations, pads)]
    batches, channels = x.shape[0], x.shape[1] // math.prod(block)
    blocks = x.reshape(batches, channels, *block, *counts)
    out = np.zeros((batches, channels, *image), x.dtype)
    for inside in itertools.product(*map(range, block)):
        for place in itertools.product(*map(range, counts)):
            at = [place[k] * steps[k] - before[k] + inside[k] * gaps[k] for k in range(rank)]
            if all(0 <= a < n for a, n in zip(at, image, strict=True)):
                every = (slice(None), slice(None))
                out[(*every, *at)] += blocks[(*every, *inside, *place)]
    return out


@col2im.compute
def col2im_compute(
    x: te.Tensor,
    *,
    image: Dims,
    block: Ints,
    strides: Ints | None,
    dilations: Ints | None,
    pads: Ints | None,
    out: TensorType,
) -> te.Tensor:
    rank = len(block)
    steps, gaps = strides or (1,) * rank, dilations or (1,) * rank
    before = (pads or (0,) * 2 * rank)[:rank]
    counts = _counts(image, block, strides, dilations, pads)
    axes = [te.reduce_axis(k, name=f"r{n}") for n, k in enumerate(block)]

    def element(n: Expr, c: Expr, *at: Expr) -> Any:
        row: Any = c
        column: Any = te.const(0)
        inside: list[Expr] = []
        for k in range(rank):
            moved = at[k] + before[k] - axes[k] * gaps[k]
            place = moved // steps[k]
            row = row * block[k] + axes[k]
            column = column * counts[k] + place
            inside += [moved >= 0, moved % steps[k] == 0, place < counts[k]]
        pixel = x[n, row, column]
        return te.sum(te.if_then_else(te.all_of(*inside), pixel, te.const(0, x.dtype)), axis=axes)

    names = ["n", "c", *(f"i{k}" for k in range(rank))]
    return te.compute(out.shape, element, name="col2im", axis_names=names)
