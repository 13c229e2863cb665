"""Layouts of images: plain N×C×spatial, or with the channels in blocks, N×(C/b)×spatial×b.

A layout is a number: the width of a block, or 0 for plain. Channels that pad the last block are
zero; every computation in a blocked layout keeps them so.

Beside its declaration, an operator says in which layouts it can be computed:

    @max_pool.layouts
    def max_pool_layouts(blocking: Blocking, call: Call, out: TensorType) -> Iterator[Form]: ...

Each form names the layouts of operands and result, its cost, and how to emit it. Operators without
such a rule are computed on plain images.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any, Final, NamedTuple

import numpy as np

from tilewright.graph.building.builder import Builder
from tilewright.graph.ir import Call, Value
from tilewright.graph.ir.types import TensorType, Type, known_dim
from tilewright.ir import DType, Expr
from tilewright.target import Target

PLAIN: Final = 0
#: Assumed value of a dimension that is known only at run time.
_UNKNOWN: Final = 32

Emit = Callable[[Builder, Sequence[Any]], Any]


class Form(NamedTuple):
    """One way to compute a call."""

    #: The layout that each operand has to have.
    operands: tuple[int, ...]
    #: The layout of the result.
    result: int
    #: Roughly how many cycles it takes.
    cost: float
    #: Emits it: from a builder and the operands, the result.
    emit: Emit

    def __str__(self) -> str:
        layouts = (self.operands[0] if self.operands else PLAIN, self.result)
        return " to ".join(f"blocks of {k}" if k else "plain" for k in layouts)


@dataclass(frozen=True)
class Blocking:
    """The widths of blocks for a machine, and the costs of computing with them."""

    target: Target
    #: Bytes of the narrowest elements that are multiplied.
    itemsize: int = 4
    #: The widest block there may be; 0: any.
    widest: int = 0

    @property
    def is_last(self) -> bool:
        """Whether there is a single block, as wide as the image has channels (`layouts.last`)."""
        return False

    @cached_property
    def widths(self) -> tuple[int, ...]:
        """Widths of blocks: a cache line of channels, and less, down to a vector."""
        lanes = self.target.lanes("float32")
        width = max(lanes, self.target.caches.line // self.itemsize)
        found = [width]
        while found[-1] > lanes:
            found.append(found[-1] // 2)
        return tuple(w for w in found if not self.widest or w <= self.widest)

    def blocks(self, type_: Type) -> list[int]:
        """The blocked layouts that an image may have: the widest two that its channels fill, or the
        narrowest."""
        channels = channels_of(type_)
        if channels is None:
            return []
        whole = [w for w in self.widths if channels % w == 0]
        return whole[:2] or [self.widths[-1]]

    def number(self, layout: int) -> int:
        """The number of a layout, counted from 0 for plain."""
        return (PLAIN, *self.widths).index(layout)

    def layout(self, type_: Type, number: int) -> int:
        """The layout of this number, for an image."""
        del type_
        return (PLAIN, *self.widths)[number]

    # ---- costs ----------------------------------------------------------------------------------

    def products(self, count: float, dtype: DType, share: float) -> float:
        """Cycles for `count` multiply-adds at a share of the peak rate."""
        return count / (self.target.lanes(dtype) * self.target.fma_ports * share)

    def copy(self, elements: float, dtype: DType) -> float:
        """Cycles to read and write this many elements."""
        return self.target.timing.copy_cycles * elements / self.target.lanes(dtype)

    def change(self, type_: TensorType, old: int, new: int) -> float:
        """Cycles to convert an image to another layout."""
        steps = (old != PLAIN) + (new != PLAIN) if old != new else 0
        if is_view(type_, old) and is_view(type_, new):
            return 0.0
        factor = self.target.timing.relayout_factor
        return steps * factor * self.copy(count(type_.shape), type_.dtype)


def channels_of(type_: Type) -> int | None:
    """The number of channels of a tensor that may be an image."""
    if not isinstance(type_, TensorType) or type_.ndim < 3 or not _is_counted(type_.dtype):
        return None
    return known_dim(type_.shape[1]) or None


def _is_counted(dtype: DType) -> bool:
    """Whether convolutions take or give such elements: floats, bytes, and sums of bytes."""
    return dtype.is_float or (dtype.is_integer and dtype.bits in (8, 32))


def count(dims: Sequence[Expr | int]) -> float:
    """How many elements there are; a guess where dimensions are known only at run time."""
    numbers = [known_dim(d) for d in dims]
    return float(prod(_UNKNOWN if n is None else n for n in numbers))


def blocked_type(type_: TensorType, block: int) -> TensorType:
    """The type of an image in a layout."""
    if block == PLAIN:
        return type_
    batch, channels, *spatial = type_.shape
    whole = -(-int(known_dim(channels) or 0) // block)
    return type_.with_shape([batch, whole, *spatial, block])


def is_view(type_: TensorType, block: int) -> bool:
    """Whether the layout stores all elements in the order of the plain image."""
    if block == PLAIN:
        return True
    ones = all(known_dim(d) == 1 for d in type_.shape[2:])
    return ones and (channels_of(type_) or 1) % block == 0


# ---- conversions --------------------------------------------------------------------------------


def change_layout(builder: Builder, value: Value, plain: TensorType, old: int, new: int) -> Value:
    """`value`, an image of the type `plain` in the layout `old`, in the layout `new`."""
    if old == new:
        return value
    if is_view(plain, old) and is_view(plain, new):
        return builder.emit("reshape", value, shape=blocked_type(plain, new).shape)
    if old != PLAIN:
        channels = known_dim(plain.shape[1])
        value = builder.emit("from_blocked", value, channels=channels, name=value.name)
    return value if new == PLAIN else builder.emit("to_blocked", value, block=new, name=value.name)


# ---- forms that many operators share ------------------------------------------------------------


def elementwise_layouts(
    blocking: Blocking, call: Call, out: TensorType, *, whole: int = 0
) -> Iterator[Form]:
    """An operator on tensors that broadcast by NumPy's rules, without attributes on axes. The last
    `whole` operands apply to every element as they are."""
    if out.size == 1:
        return  # a scalar has no operands in a blocked layout
    images = len(call.args) - whole
    for block in blocking.blocks(out):
        sides = [_side(a, out, block) for a in call.args[:images]] + ["scalar"] * whole
        wanted = tuple(block if s == "image" else PLAIN for s in sides)
        emit = _broadcast(call, sides, out.ndim, block)
        channels = channels_of(out) or 0
        if channels % block and not _keeps_zero(call, sides):
            emit = _cleared(emit, channels)
        yield Form(wanted, block, 0.0, emit)


def _side(value: Value | None, out: TensorType, block: int) -> str:
    """The role of an operand: image, by channel, the same for all channels, or scalar."""
    if value is None or value.tensor.size == 1:
        return "scalar"
    own = (1,) * (out.ndim - value.ndim) + value.shape
    if known_dim(own[1]) == 1 and known_dim(out.shape[1]) != 1:
        return "spread"
    return "image" if value.ndim == out.ndim else "channels"


def _keeps_zero(call: Call, sides: Sequence[str]) -> bool:
    """Whether zeros give zero, so that the padding of the last block stays zero."""
    if "spread" in sides:
        return False
    arrays: list[Any] = []
    for value, side in zip(call.args, sides, strict=True):
        if value is None or side != "scalar":
            arrays.append(None if value is None else np.zeros((1,) * value.ndim, value.dtype.numpy))
        elif value.constant is None:
            return False
        else:
            arrays.append(value.constant)
    return not np.any(np.asarray(call.op.evaluate(arrays, call.attrs)[0]))


def _broadcast(call: Call, sides: Sequence[str], rank: int, block: int) -> Emit:
    """The same call, with operands that are not images brought into the blocked layout."""

    def by_channel(builder: Builder, value: Value) -> Value:
        full = [*(1,) * (rank - value.ndim), *value.shape]
        image = builder.emit("reshape", value, shape=full)
        return builder.emit("to_blocked", image, block=block)

    def spread(builder: Builder, value: Value) -> Value:
        return builder.emit("reshape", value, shape=[*value.shape, 1])

    ways = {"channels": by_channel, "spread": spread}

    def emit(builder: Builder, args: Sequence[Any]) -> Any:
        pairs = zip(args, sides, strict=True)
        operands = [ways[s](builder, a) if s in ways else a for a, s in pairs]
        return builder.emit(call.op, *operands, **call.attrs)

    return emit


def _cleared(emit: Emit, channels: int) -> Emit:
    """The same, with the padding of the last block cleared."""

    def then_clear(builder: Builder, args: Sequence[Any]) -> Any:
        return builder.emit("clear_fill", emit(builder, args), channels=channels)

    return then_clear


def window_layouts(blocking: Blocking, call: Call, out: TensorType) -> Iterator[Form]:
    """A window that slides over each channel: the block is one more axis, with a window of 1."""
    rank = out.ndim - 2
    attrs = dict(call.attrs)
    for name in ("kernel", "strides", "dilations"):
        attrs[name] = (*(attrs[name] or (1,) * rank), 1)
    pads = attrs["pads"] or (0,) * (2 * rank)
    attrs["pads"] = (*pads[:rank], 0, *pads[rank:], 0)
    yield from same_on_blocks(blocking, call, out, attrs)


def same_on_blocks(
    blocking: Blocking, call: Call, out: TensorType, attrs: dict[str, Any]
) -> Iterator[Form]:
    """The same operator on blocked images, with other attributes."""

    def emit(builder: Builder, args: Sequence[Any]) -> Any:
        return builder.emit(call.op, *args, **attrs)

    images = [a for a in call.args if a is not None and a.ndim == out.ndim]
    for block in blocking.blocks(out):
        wanted = tuple(block if a in images else PLAIN for a in call.args)
        yield Form(wanted, block, 0.0, emit)


def last_layouts(blocking: Blocking, call: Call, out: TensorType, **attrs: Any) -> Iterator[Form]:
    """The same operator on images with channels last, each with its own number of channels."""

    def emit(builder: Builder, args: Sequence[Any]) -> Any:
        return builder.emit(call.op, *args, **{**call.attrs, **attrs})

    wanted = [channels_of(a.type) for a in call.args if a is not None]
    for block in blocking.blocks(out):
        if all(wanted):
            copied = blocking.copy(count(out.shape), out.dtype)
            yield Form(tuple(c or PLAIN for c in wanted), block, copied, emit)


def along_axis_layouts(blocking: Blocking, call: Call, out: TensorType) -> Iterator[Form]:
    """An operator along one axis of its first operand, if that is not the channels'."""
    axis = int(call.attrs["axis"]) % out.ndim
    if axis != 1:
        yield from same_on_blocks(blocking, call, out, {**call.attrs, "axis": axis})
