"""Shapes and layout: views, slices, padding, concatenation, repetition."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tilewright.frontends.torch.node import Node
from tilewright.frontends.torch.table import converts
from tilewright.graph import Dim, TensorType, Value
from tilewright.ir import Const, as_expr
from tilewright.support.errors import UserError

# ---- the same elements in another shape ---------------------------------------------------------


@converts("view", "reshape", "_unsafe_view", "view_copy", "_reshape_alias", "reshape_copy")
def view(n: Node) -> Value:
    return reshaped(n, n.tensor("self"), n.shape)


def reshaped(n: Node, x: Value, shape: Sequence[Dim]) -> Value:
    """A tensor in another shape, unless it has it already."""
    same = x.ndim == len(shape) and all(
        a is as_expr(b) for a, b in zip(x.shape, shape, strict=True)
    )
    return x if same else n.builder.reshape(x, shape=list(shape))


@converts("flatten", "squeeze", "squeeze_copy", "unsqueeze_copy", "unflatten")
def in_shape_of_result(n: Node) -> Value:
    return reshaped(n, n.tensor("self"), n.shape)


@converts("unsqueeze")
def unsqueeze(n: Node) -> Value:
    x = n.tensor("self")
    return n.builder.unsqueeze(x, axes=[n.axis("dim", x.ndim + 1)])


@converts("permute", "permute_copy")
def permute(n: Node) -> Value:
    x = n.tensor("self")
    return n.builder.transpose(x, axes=n.axes("dims")) if x.ndim else x


@converts("transpose", "t", "transpose_copy", "t_copy")
def transpose(n: Node) -> Value:
    x = n.tensor("self")
    if x.ndim < 2:
        return x
    axes = list(range(x.ndim))
    first, second = n.axis("dim0", default=0), n.axis("dim1", default=1)
    axes[first], axes[second] = axes[second], axes[first]
    return n.builder.transpose(x, axes=axes)


@converts("expand", "expand_copy", "broadcast_to")
def expand(n: Node) -> Value:
    return n.expanded(n.tensor("self"), n.shape)


@converts("resize")
def resize(n: Node) -> Value:
    """The first elements in another shape; elements after the last one have no value."""
    x, b, shape = n.tensor("self"), n.builder, n.shape
    wanted, held = (TensorType(x.dtype, s).size for s in (shape, x.shape))
    if wanted is None or held is None or wanted > held:
        raise UserError(
            f"resize of {x} to {shape}", reason="there may be elements that nothing has written"
        )
    flat = b.reshape(x, shape=[-1])
    return b.reshape(b.slice(flat, starts=[0], ends=[wanted], axes=[0]), shape=list(shape))


@converts("flip")
def flip(n: Node) -> Value:
    x = n.tensor("self")
    axes = n.axes("dims") if n["dims"] else []
    return n.builder.flip(x, axes=axes) if axes and x.ndim else x


@converts("roll")
def roll(n: Node) -> Value:
    x, shifts = n.tensor("self"), n.dims("shifts")
    if not x.ndim:
        return x
    if n.get("dims"):
        return n.builder.roll(x, shifts=shifts, axes=n.axes("dims"))
    flat = n.builder.reshape(x, shape=[-1])
    return reshaped(n, n.builder.roll(flat, shifts=shifts, axes=[0]), x.shape)


# ---- parts --------------------------------------------------------------------------------------


@converts("slice", "slice_copy")
def slice_(n: Node) -> Value:
    x, step = n.tensor("self"), int(n.get("step", 1))
    start, end = (_bound(n, name) for name in ("start", "end"))
    start = 0 if start is None else start
    end = _TO_THE_END if end is None else end
    if start == 0 and end == _TO_THE_END and step == 1:
        return x
    axis = n.axis("dim", default=0)
    return n.builder.slice(x, starts=[start], ends=[end], axes=[axis], steps=[step])


_TO_THE_END = (1 << 63) - 1


def _bound(n: Node, name: str) -> Dim | None:
    return None if n.get(name) is None else n.dim(name)


@converts("narrow", "narrow_copy")
def narrow(n: Node) -> Value:
    x, first, length = n.tensor("self"), n.dim("start"), n.dim("length")
    axis = n.axis("dim")
    if isinstance(first, int) and first < 0:
        first = x.shape[axis] + first
    return n.builder.slice(x, starts=[first], ends=[first + length], axes=[axis])


@converts("select", "select_copy")
def select(n: Node) -> Value:
    x, b = n.tensor("self"), n.builder
    axis, index = n.axis("dim"), n.dim("index")
    if isinstance(index, int):
        start = index
        end = _TO_THE_END if index == -1 else index + 1
        part = b.slice(x, starts=[start], ends=[end], axes=[axis])
        return b.squeeze(part, axes=[axis])
    return b.gather(x, n.number(index), axis=axis)


@converts("split", "split_with_sizes", "split_copy", "split_with_sizes_copy", "chunk")
def split(n: Node) -> list[Value]:
    x, axis = n.tensor("self"), n.axis("dim", default=0)
    sizes = [n.shape_of(m)[axis] for m in n.results]
    return list(n.builder.emit_all("split", [x], {"sizes": sizes, "axis": axis}))


@converts("unbind", "unbind_copy")
def unbind(n: Node) -> list[Value]:
    x, axis = n.tensor("self"), n.axis("dim", default=0)
    parts = [
        n.builder.slice(x, starts=[k], ends=[k + 1], axes=[axis]) for k in range(len(n.results))
    ]
    return [n.builder.squeeze(p, axes=[axis]) for p in parts]


@converts("diagonal", "diagonal_copy")
def diagonal(n: Node) -> Value:
    x, b, offset = n.tensor("self"), n.builder, int(n.get("offset", 0))
    first, second = n.axis("dim1", default=0), n.axis("dim2", default=1)
    others = [k for k in range(x.ndim) if k not in (first, second)]
    x = b.transpose(x, axes=[*others, first, second])
    size = n.shape[-1]
    row, column = (n.constant(max(k, 0), "int64") for k in (-offset, offset))
    one = n.constant(1, "int64")
    places = b.ramp(
        b.add(b.mul(row, n.number(x.shape[-1], "int64")), column),
        b.add(n.number(x.shape[-1], "int64"), one),
        size=size,
    )
    flat = b.reshape(x, shape=[*x.shape[:-2], x.shape[-2] * x.shape[-1]])
    return b.gather(flat, places, axis=flat.ndim - 1)


@converts("unfold", "unfold_copy")
def unfold(n: Node) -> Value:
    x, b, axis = n.tensor("self"), n.builder, n.axis("dimension")
    size, step = n.dim("size"), n.dim("step")
    if not x.ndim:
        return b.slice(b.reshape(x, shape=[1]), starts=[0], ends=[size], axes=[0])
    count = n.shape[axis]
    zero = n.constant(0, "int64")
    starts = b.ramp(zero, n.number(step, "int64"), size=count)
    steps = b.ramp(zero, n.constant(1, "int64"), size=size)
    places = b.add(b.unsqueeze(starts, axes=[1]), b.unsqueeze(steps, axes=[0]))
    taken = b.gather(x, places, axis=axis)
    order = [k for k in range(taken.ndim) if k != axis + 1]
    return b.transpose(taken, axes=[*order, axis + 1])


# ---- several tensors ----------------------------------------------------------------------------


@converts("cat", "concat", "concatenate")
def cat(n: Node) -> Value:
    dtype = n.dtype
    values = n.tensors("tensors", dtype)
    # torch allows tensors of the shape (0,) among those of any shape.
    rank = max(v.ndim for v in values)
    kept = [v for v in values if v.ndim == rank and not _is_empty(v, rank)] or values[:1]
    if len(kept) == 1:
        return n.builder.identity(kept[0])
    return n.builder.concat(*kept, axis=int(n.get("dim", 0)) % rank)


def _is_empty(value: Value, rank: int) -> bool:
    return rank == 1 and value.tensor.size == 0


@converts("stack")
def stack(n: Node) -> Value:
    values = n.tensors("tensors", n.dtype)
    axis = int(n.get("dim", 0)) % (values[0].ndim + 1)
    parts = [n.builder.unsqueeze(v, axes=[axis]) for v in values]
    return n.builder.concat(*parts, axis=axis) if len(parts) > 1 else parts[0]


@converts("repeat", "tile")
def repeat(n: Node) -> Value:
    x, b = n.tensor("self"), n.builder
    repeats = n.dims("repeats" if "repeats" in n else "dims")
    x = reshaped(n, x, [*[1] * (len(repeats) - x.ndim), *x.shape])
    return b.tile(x, repeats=[*[1] * (x.ndim - len(repeats)), *repeats]) if repeats else x


@converts("repeat_interleave.self_int")
def repeat_interleave(n: Node) -> Value:
    x, b = n.tensor("self"), n.builder
    if n.get("dim") is None:
        x = b.reshape(x, shape=[-1])
        return b.repeat_elements(x, repeats=int(n["repeats"]), axis=0)
    return b.repeat_elements(x, repeats=int(n["repeats"]), axis=n.axis("dim"))


# ---- borders ------------------------------------------------------------------------------------


@converts("constant_pad_nd")
def constant_pad(n: Node) -> Value:
    x = n.tensor("self")
    return padded(n, x, n.dims("pad"), "constant", n.like(n.get("value", 0), x))


@converts(*(f"{kind}_pad{k}d" for kind in ("reflection", "replication") for k in (1, 2, 3)))
def reflected_pad(n: Node) -> Value:
    mode = "reflect" if n.op.startswith("reflection") else "edge"
    return padded(n, n.tensor("self"), n.dims("padding"), mode)


@converts("_pad_circular")
def circular_pad(n: Node) -> Value:
    return padded(n, n.tensor("self"), n.dims("pad"), "wrap")


def padded(
    n: Node, x: Value, pads: Sequence[Dim], mode: str = "constant", value: Value | None = None
) -> Value:
    """Padded by these numbers of elements, given for the last dimension first."""
    before: list[Dim] = [0] * x.ndim
    after: list[Dim] = [0] * x.ndim
    for k in range(len(pads) // 2):
        before[x.ndim - 1 - k], after[x.ndim - 1 - k] = pads[2 * k], pads[2 * k + 1]
    if mode == "constant":
        return n.builder.pad(x, value, before=before, after=after)
    return n.builder.pad(x, before=before, after=after, mode=mode)


# ---- pixels and channels -----------------------------------------------------------------------


@converts("pixel_shuffle", "pixel_unshuffle")
def pixel_shuffle(n: Node) -> Value:
    x, b = n.tensor("self"), n.builder
    *batch, c, h, w = x.shape
    lead: list[Dim] = [math.prod(int(d.value) for d in batch if isinstance(d, Const))]
    if not all(isinstance(d, Const) for d in batch):
        lead = [batch[0]] if len(batch) == 1 else [-1]
    if n.op.startswith("pixel_shuffle"):
        r = int(n["upscale_factor"])
        parts = b.reshape(x, shape=[*lead, c // (r * r), r, r, h, w])
        transposed = b.transpose(parts, axes=[0, 1, 4, 2, 5, 3])
    else:
        r = int(n["downscale_factor"])
        parts = b.reshape(x, shape=[*lead, c, h // r, r, w // r, r])
        transposed = b.transpose(parts, axes=[0, 1, 3, 5, 2, 4])
    return b.reshape(transposed, shape=n.shape)


@converts("channel_shuffle", "native_channel_shuffle")
def channel_shuffle(n: Node) -> Value:
    x, b, groups = n.tensor("self"), n.builder, int(n["groups"])
    batch, c, *rest = x.shape
    parts = b.reshape(x, shape=[batch, groups, c // groups, *rest])
    transposed = b.transpose(parts, axes=[0, 2, 1, *range(3, 3 + len(rest))])
    return reshaped(n, transposed, x.shape)


@converts("sym_size", "sym_numel", "sym_stride", "sym_storage_offset")
def size_of(n: Node) -> Any:
    if not n.op.startswith("sym_size"):
        # The position of a tensor in memory, which only torch's checks use.
        return n.result
    return n.tensor("self").shape[n.axis("dim")]


@converts("_local_scalar_dense", "item")
def item(n: Node) -> Value:
    x = n.tensor("self")
    value = n.builder.reshape(x, shape=[]) if x.ndim else x
    return n.cast(value, "int64") if value.dtype.is_integer else value
