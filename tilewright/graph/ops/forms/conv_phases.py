"""Transposed convolutions as one convolution for all phases, which are then interleaved.

With a stride of s, the results at s·q, s·q + 1, … s·q + s-1 (the phases) each use every s-th weight
of the window. A convolution of the image computes all phases of a position q as separate channels;
`phases_to_image` then interleaves the phases:

    y = conv_transpose(x, w, strides=[2, 2])             w: C×O×4×4
    -->
    p = conv_blocked(x, w as 2·2·O×C×2×2, pads=…)        N×(2·2·O/b)×Q×R×b
    y = phases_to_image(p, strides=[2, 2], cut=…)        N×(O/b)×2Q×2R×b, cut to size

Where the result stays blocked, the channels of every phase are padded to whole blocks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from math import prod
from typing import Any, NamedTuple

import numpy as np

from tilewright.graph.building.builder import Builder
from tilewright.graph.ir import Array, Call, Value
from tilewright.graph.ir.attributes import Ints
from tilewright.graph.ir.op import op
from tilewright.graph.ir.types import TensorType, Type, known_dim
from tilewright.graph.layouts.images import PLAIN, Blocking, Emit, Form, channels_of, count
from tilewright.graph.ops.forms.blocked import blocked_array, unblocked_array
from tilewright.graph.ops.neural.conv_transpose import conv_transpose
from tilewright.graph.ops.reduce.reduced import accumulator
from tilewright.graph.sizes.naturals import simplify_size
from tilewright.ir import Expr
from tilewright.support.errors import UserError
from tilewright.tensor import te


@conv_transpose.layouts
def conv_transpose_layouts(blocking: Blocking, call: Call, out: TensorType) -> Iterator[Form]:
    """From blocked channels to blocked or plain ones, with weights that are packed once."""
    x, phases = call.args[0], phases_of(call)
    is_wide = x is not None and accumulator(x.dtype) is x.dtype
    if x is None or phases is None or not is_wide or blocking.is_last:
        return
    outputs = channels_of(out) or 0
    for inner in blocking.blocks(x.type):
        inputs = _filled(channels_of(x.type) or 0, inner)
        for block in blocking.blocks(out):
            cost = _cost(blocking, x, out, phases, inputs * _filled(outputs, block) * phases.number)
            yield Form((inner, PLAIN, PLAIN), block, cost, _into_blocks(phases, inner, block))
        block = blocking.widths[-1]
        cost = _cost(blocking, x, out, phases, inputs * _filled(outputs * phases.number, block))
        cost += blocking.target.timing.conv.scatter_factor * blocking.copy(
            count(out.shape), out.dtype
        )
        yield Form((inner, PLAIN, PLAIN), PLAIN, cost, _into_plain(phases, inner, block))


@conv_transpose.cost
def conv_transpose_cost(blocking: Blocking, call: Call, out: TensorType) -> float:
    """The cost of the plain form."""
    x, weight, _ = call.args
    assert x is not None and weight is not None
    products = count(x.shape) * count(weight.shape[1:])
    return blocking.products(products, out.dtype, blocking.target.timing.conv.transposed_plain)


def _cost(blocking: Blocking, x: Value, out: TensorType, phases: Phases, channels: float) -> float:
    """The cost of the products of all phases, and of the copy that interleaves these."""
    products = count(x.shape[:1]) * count(x.shape[2:]) * prod(phases.kernel) * channels
    elements = count(out.shape) if phases.number > 1 else 0.0
    share = blocking.target.timing.conv.transposed
    return blocking.products(products, out.dtype, share) + blocking.copy(elements, out.dtype)


def _filled(channels: int, block: int) -> int:
    return -(-channels // block) * block


# ---- phases -------------------------------------------------------------------------------------


class Phases(NamedTuple):
    """The convolution that computes all phases of a transposed one; numbers by spatial axis."""

    strides: tuple[int, ...]
    #: Its kernel: how many weights of the window each phase uses.
    kernel: tuple[int, ...]
    #: Its padding, before all axes and then after.
    pads: tuple[int, ...]
    #: What is cut off the interleaved phases, before all axes and then after.
    cut: tuple[int, ...]

    @property
    def number(self) -> int:
        return prod(self.strides)

    @property
    def rank(self) -> int:
        return len(self.strides)


def phases_of(call: Call) -> Phases | None:
    """The phases of a transposed convolution by constant weights; None where that is impossible."""
    _, weight, bias = call.args
    assert weight is not None
    if not weight.is_constant or (bias is not None and not bias.is_constant):
        return None
    rank = weight.ndim - 2
    pads = [known_dim(p) for p in call.attrs["pads"] or (0,) * (2 * rank)]
    extra = [known_dim(p) for p in call.attrs["output_pads"] or (0,) * rank]
    window = [known_dim(k) for k in weight.shape[2:]]
    if None in (*pads, *extra, *window) or call.attrs["groups"] != 1:
        return None
    if any(d != 1 for d in call.attrs["dilations"]):
        return None
    steps = call.attrs["strides"] or (1,) * rank
    rows = zip(steps, window, pads[:rank], pads[rank:], extra, strict=True)
    axes = [_along(*row) for row in rows]  # type: ignore[arg-type]
    if any(min(axis) < 0 for axis in axes):
        return None
    kernel, first, last, before, after = zip(*axes, strict=True)
    return Phases(tuple(steps), kernel, (*first, *last), (*before, *after))


def _along(
    step: int, window: int, cut: int, cut_after: int, extra: int
) -> tuple[int, int, int, int, int]:
    """Along one axis: the kernel, its padding before and after, what is cut before and after.

    The result at y is in the phase (y + cut) mod step at the position q = (y + cut) div step, which
    uses the pixels q, q - 1, … Positions before the first and after the last result are left out.
    """
    kernel = -(-window // step)
    end = window + extra - cut_after
    pads = kernel - 1 - cut // step, (end - 1) // step
    return kernel, *pads, cut % step, -end % step


# ---- writing them down --------------------------------------------------------------------------


def _into_blocks(phases: Phases, inner: int, block: int) -> Emit:
    def emit(builder: Builder, args: Sequence[Any]) -> Any:
        x, weight, bias = args
        outputs = _filled(int(known_dim(weight.shape[1]) or 0), block)
        factors = _widened(weight.constant, 1, outputs)
        each = None if bias is None else _widened(bias.constant, 0, outputs)
        products = _all_phases(builder, phases, x, factors, each, inner, block)
        if phases.number == 1 and not any(phases.cut):
            return products
        return builder.emit("phases_to_image", products, strides=phases.strides, cut=phases.cut)

    return emit


def _into_plain(phases: Phases, inner: int, block: int) -> Emit:
    def emit(builder: Builder, args: Sequence[Any]) -> Any:
        x, weight, bias = args
        each = None if bias is None else bias.constant
        products = _all_phases(builder, phases, x, weight.constant, each, inner, block)
        channels = known_dim(weight.shape[1])
        where = {"strides": phases.strides, "cut": phases.cut, "channels": channels}
        return builder.emit_all("phases_to_image", [products], where)[0]

    return emit


def _all_phases(
    builder: Builder,
    phases: Phases,
    x: Value,
    weight: Array,
    bias: Array | None,
    inner: int,
    block: int,
) -> Value:
    """N×(phases·O/b)×positions×b: all phases of every position, each phase's channels together."""
    rows = builder.constant(phase_weights(weight, phases), x.dtype)
    packed = builder.emit("pack_conv_weights", rows, in_block=inner, out_block=block)
    added = None
    if bias is not None:
        repeated = builder.constant(np.tile(bias, phases.number), x.dtype)
        added = builder.emit("pack_channels", repeated, block=block)
    return builder.emit("conv_blocked", x, packed, added, pads=phases.pads)


def phase_weights(weight: Array, phases: Phases) -> Array:
    """C×O×window as (phases·O)×C×kernel: the last weight that a phase uses comes first."""
    rank = phases.rank
    pairs = list(zip(phases.kernel, phases.strides, strict=True))
    for n, (k, s) in enumerate(pairs):
        weight = _widened(weight, 2 + n, k * s)
    split = weight.reshape(*weight.shape[:2], *chain.from_iterable(pairs))
    kernel_axes, phase_axes = range(2, 2 + 2 * rank, 2), range(3, 3 + 2 * rank, 2)
    transposed = split.transpose(*phase_axes, 1, 0, *kernel_axes)
    rows = transposed.reshape(-1, weight.shape[0], *phases.kernel)
    return np.ascontiguousarray(np.flip(rows, tuple(range(2, 2 + rank))))


def _widened(array: Array, axis: int, extent: int) -> Array:
    """Padded with zeros along an axis up to an extent."""
    missing = extent - array.shape[axis]
    after = [(0, missing if n == axis else 0) for n in range(array.ndim)]
    return np.pad(array, after) if missing else array


# ---- phases side by side ------------------------------------------------------------------------


@op
def phases_to_image(x: Value, *, strides: Ints, cut: Ints, channels: int = 0) -> Type:
    """An image of phases, N×(phases·C/b)×places×b, as the image that they make up, cut at its
    borders: N×(C/b)×spatial×b, or the plain N×C×spatial where the number of channels is given.

    Phases are counted by the last axis first, and come before the channels of each.
    """
    batch, blocks, *places, block = x.shape
    count = prod(strides)
    pairs = zip(places, strides, _cuts(strides, cut), strict=True)
    spatial = [simplify_size(q * s - before - after) for q, s, (before, after) in pairs]
    if channels:
        return x.tensor.with_shape([batch, channels, *spatial])
    if (known_dim(blocks) or 0) % count:
        raise UserError(f"{x} does not hold {count} phases of whole blocks")
    return x.tensor.with_shape([batch, (known_dim(blocks) or 0) // count, *spatial, block])


def _cuts(strides: Ints, cut: Ints) -> list[tuple[int, int]]:
    return list(zip(cut[: len(strides)], cut[len(strides) :], strict=True))


@phases_to_image.reference
def phases_to_image_reference(x: Array, *, strides: Ints, cut: Ints, channels: int) -> Array:
    rank, count, block = len(strides), prod(strides), x.shape[-1]
    plain = unblocked_array(x, 1)
    if channels:
        plain = plain[:, : count * channels]
    split = plain.reshape(x.shape[0], *strides, -1, *x.shape[2:-1])
    pairs = [(2 + rank + n, 1 + n) for n in range(rank)]
    axes = [0, 1 + rank, *chain.from_iterable(pairs)]
    extents = [q * s for q, s in zip(x.shape[2:-1], strides, strict=True)]
    image = split.transpose(axes).reshape(x.shape[0], -1, *extents)
    spans = [slice(a, e - b) for e, (a, b) in zip(extents, _cuts(strides, cut), strict=True)]
    image = image[(slice(None), slice(None), *spans)]
    return image.copy() if channels else blocked_array(image, 1, block)


@phases_to_image.compute
def phases_to_image_compute(
    x: te.Tensor, *, strides: Ints, cut: Ints, channels: int, out: TensorType
) -> te.Tensor:
    rank = len(strides)

    def element(n: Expr, c: Expr, *i: Expr) -> Expr:
        phase: Expr = te.const(0)
        places = list[Expr]()
        for y, s, (before, _) in zip(i[:rank], strides, _cuts(strides, cut), strict=True):
            phase = phase * s + te.floormod(y + before, s)
            places.append(te.floordiv(y + before, s))
        channel = phase * out.shape[1] + c
        if not channels:
            return x[(n, channel, *places, i[-1])]
        block = x.shape[-1]
        return x[(n, te.floordiv(channel, block), *places, te.floormod(channel, block))]

    return te.compute(out.shape, element, name="phases_to_image")
