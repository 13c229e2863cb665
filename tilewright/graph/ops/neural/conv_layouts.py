"""How `conv` computes blocked channels: by which operator of `conv_blocked`, at what cost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from tilewright.graph.building.builder import Builder
from tilewright.graph.ir import Call, Value
from tilewright.graph.ir.types import TensorType, known_dim
from tilewright.graph.layouts.images import PLAIN, Blocking, Emit, Form, channels_of, count
from tilewright.graph.layouts.last import ChannelsLast
from tilewright.graph.ops.neural.conv import conv
from tilewright.graph.ops.reduce.reduced import accumulator
from tilewright.graph.sizes.naturals import simplify_size
from tilewright.ir import DType, Expr

#: The number of products that instructions for bytes add up.
_TOGETHER: Final = 4


@conv.layouts
def conv_layouts(blocking: Blocking, call: Call, out: TensorType) -> Iterator[Form]:
    """Convolutions by constant weights, which are packed once."""
    x, weight, bias = call.args
    assert x is not None and weight is not None
    if isinstance(blocking, ChannelsLast):
        yield from _channels_last(blocking, call, out)
        return
    constant = weight.is_constant and (bias is None or bias.is_constant)
    if not constant or channels_of(x.type) is None or accumulator(out.dtype) is not out.dtype:
        return
    groups, is_narrow = int(call.attrs["groups"]), x.dtype is not out.dtype
    # Of integers, there are only products of bytes.
    if x.dtype.is_integer and (x.dtype.bits > 8 or not is_narrow):
        return
    if groups == 1:
        yield from _ungrouped(blocking, call, out)
    elif known_dim(weight.shape[1]) == 1 and known_dim(weight.shape[0]) == groups:
        yield from _depthwise(blocking, call, out)
    else:
        yield from _grouped(blocking, call, out, groups)


@conv.cost
def conv_cost(blocking: Blocking, call: Call, out: TensorType) -> float:
    """The cost of the plain form."""
    x, weight, _ = call.args
    assert x is not None and weight is not None
    products = count(out.shape) * count(weight.shape[1:])
    if isinstance(blocking, ChannelsLast):
        return blocking.convolution(products, x.dtype, last=False)
    rates = blocking.target.timing.conv
    share = rates.depthwise_plain if known_dim(weight.shape[1]) == 1 else rates.plain
    return blocking.products(products, out.dtype, share)


def _ungrouped(blocking: Blocking, call: Call, out: TensorType) -> Iterator[Form]:
    x, weight, _ = call.args
    assert x is not None and weight is not None
    kernel, rates = count(weight.shape[2:]), blocking.target.timing.conv
    for block in blocking.blocks(out):
        results = count(_padded(out, block).shape) * kernel
        if x.dtype is out.dtype:
            cost = blocking.products(results * count(x.shape[1:2]), out.dtype, rates.into_blocked)
            yield _packed("conv_into_blocked", call, PLAIN, block, cost)
        for inner in blocking.blocks(x.type):
            inputs = -(-int(channels_of(x.type) or 0) // inner) * inner
            share = rates.blocked * _width(blocking, inner) * _width(blocking, block)
            cost = blocking.products(results * inputs, out.dtype, share)
            more = {k: call.attrs[k] for k in ("dtype", "fill")}
            yield _packed("conv_blocked", call, inner, block, cost, **more)
        if _are_few(blocking, x):
            yield _few_bytes(blocking, call, block, results)


def _are_few(blocking: Blocking, x: Value) -> bool:
    """Whether an image of bytes has fewer channels than blocks have."""
    return x.dtype.bits == 8 and int(channels_of(x.type) or 0) < blocking.widths[-1]


def _few_bytes(blocking: Blocking, call: Call, block: int, results: float) -> Form:
    """From a plain image of few channels, which are padded only to the number of channels that
    instructions add up at once."""
    x, _, _ = call.args
    assert x is not None
    inputs = -(-int(channels_of(x.type) or 0) // _TOGETHER) * _TOGETHER
    share = blocking.target.timing.conv.blocked * _width(blocking, block)
    cost = blocking.products(results * inputs, call.attrs["dtype"], share)
    more = {k: call.attrs[k] for k in ("dtype", "fill")}
    form = _packed("conv_blocked", call, inputs, block, cost, **more)

    def emit(builder: Builder, args: Sequence[Any]) -> Any:
        x, *others = args
        return form.emit(builder, [builder.emit("to_blocked", x, block=inputs), *others])

    copied = blocking.change(x.tensor, PLAIN, inputs)
    return Form((PLAIN,) * 3, block, cost + copied, emit)


def _grouped(blocking: Blocking, call: Call, out: TensorType, groups: int) -> Iterator[Form]:
    x, weight, _ = call.args
    assert x is not None and weight is not None
    inputs, outputs = known_dim(weight.shape[1]), known_dim(weight.shape[0])
    if inputs is None or outputs is None:
        return
    products = count(out.shape) * count(weight.shape[1:])
    rates = blocking.target.timing.conv
    ins = _group_blocks(blocking, x.tensor, inputs, out.dtype)
    for block in _group_blocks(blocking, out, outputs // groups, x.dtype):
        for inner in ins:
            share = rates.blocked * _width(blocking, inner) * _width(blocking, block)
            cost = blocking.products(products, out.dtype, share)
            more = {k: call.attrs[k] for k in ("groups", "dtype", "fill")}
            yield _packed("conv_blocked", call, inner, block, cost, **more)


def _group_blocks(blocking: Blocking, type_: TensorType, size: int, other: DType) -> list[int]:
    """The widths of blocks that divide groups of `size` channels. Those of bytes, whose sums have
    another type, may be narrower than is best for the image: instructions need them."""
    options = blocking.widths if type_.dtype is not other else blocking.blocks(type_)
    return [width for width in options if size % width == 0][:2]


def _depthwise(blocking: Blocking, call: Call, out: TensorType) -> Iterator[Form]:
    weight = call.args[1]
    assert weight is not None
    for block in blocking.blocks(out):
        results = count(_padded(out, block).shape) * count(weight.shape[2:])
        share = blocking.target.timing.conv.depthwise * _width(blocking, block)
        cost = blocking.products(results, out.dtype, share)
        yield Form((block, PLAIN, PLAIN), block, cost, _depthwise_emit(call, block))


def _padded(type_: TensorType, block: int) -> TensorType:
    channels = int(known_dim(type_.shape[1]) or 0)
    shape = [type_.shape[0], -(-channels // block) * block, *type_.shape[2:]]
    return type_.with_shape([simplify_size(d) if isinstance(d, Expr) else d for d in shape])


def _width(blocking: Blocking, block: int) -> float:
    """Wide blocks are a little better: whole cache lines, fewer pieces."""
    gain = blocking.target.timing.conv.wide_block_gain
    return (1 - gain) + gain * block / blocking.widths[0]


def _packed(name: str, call: Call, inner: int, block: int, cost: float, **more: Any) -> Form:
    attrs = {k: call.attrs[k] for k in ("strides", "pads", "dilations")} | more

    def emit(builder: Builder, args: Sequence[Any]) -> Any:
        x, weight, bias = args
        packed = builder.emit("pack_conv_weights", weight, in_block=inner, out_block=block)
        return builder.emit(name, x, packed, _packed_bias(builder, bias, block), **attrs)

    return Form((inner, PLAIN, PLAIN), block, cost, emit)


def _depthwise_emit(call: Call, block: int) -> Emit:
    attrs = {k: call.attrs[k] for k in ("strides", "pads", "dilations", "dtype", "fill")}

    def emit(builder: Builder, args: Sequence[Any]) -> Any:
        x, weight, bias = args
        single = builder.emit("reshape", weight, shape=[weight.shape[0], *weight.shape[2:]])
        packed = builder.emit("pack_channels", single, block=block)
        operands = (x, packed, _packed_bias(builder, bias, block))
        return builder.emit("depthwise_blocked", *operands, **attrs)

    return emit


# ---- channels last ------------------------------------------------------------------------------


def _channels_last(blocking: ChannelsLast, call: Call, out: TensorType) -> Iterator[Form]:
    """Few channels are padded with zeros, so that those of a pixel are loaded at once."""
    x, weight, _ = call.args
    assert x is not None and weight is not None
    channels, outputs = channels_of(x.type), channels_of(out)
    if channels is None or outputs is None or not weight.is_constant:
        return
    # Of integers, there are only products of bytes.
    if x.dtype.is_integer and (x.dtype.bits > 8 or out.dtype.bits != 32):
        return
    cost = blocking.convolution(count(out.shape) * count(weight.shape[1:]), x.dtype, last=True)
    is_depthwise = known_dim(weight.shape[1]) == 1 and channels == outputs == call.attrs["groups"]
    least = blocking.least(x.dtype)
    if is_depthwise and channels > 1:
        yield Form((channels, PLAIN, PLAIN), outputs, cost, _depthwise_emit(call, channels))
    elif not blocking.multiplies(x.dtype):
        return
    elif channels >= least or call.attrs["groups"] > 1 or _is_product(call):
        yield Form((channels, PLAIN, PLAIN), outputs, cost, _last_emit(call))
    else:
        yield Form((PLAIN,) * 3, outputs, cost, _filled_emit(call, least))


def _last_emit(call: Call) -> Emit:
    def emit(builder: Builder, args: Sequence[Any]) -> Any:
        x, weight, bias = args
        if _is_product(call):
            flat = builder.emit("reshape", weight, shape=weight.shape[:2])
            made = builder.emit("matmul", x, flat, transpose_b=True, dtype=call.attrs["dtype"])
            return made if bias is None else builder.emit("add", made, bias)
        transposed = builder.emit("transpose", weight, axes=(0, *range(2, weight.ndim), 1))
        return builder.emit("conv_last", x, transposed, bias, **call.attrs)

    return emit


def _is_product(call: Call) -> bool:
    """Whether it is a 1×1 convolution of stride 1: a product by the pixels as rows."""
    weight, attrs = call.args[1], call.attrs
    assert weight is not None
    ones = (*weight.shape[2:], *attrs["strides"], attrs["groups"])
    return all(known_dim(n) == 1 for n in ones) and all(known_dim(p) == 0 for p in attrs["pads"])


def _filled_emit(call: Call, channels: int) -> Emit:
    last = _last_emit(call)

    def emit(builder: Builder, args: Sequence[Any]) -> Any:
        x, weight, bias = args
        missing = channels - int(known_dim(weight.shape[1]) or 0)
        after = [0, missing, *(0 for _ in weight.shape[2:])]
        filled = builder.emit("pad", weight, before=[0] * weight.ndim, after=after)
        return last(builder, [builder.emit("to_blocked", x, block=channels), filled, bias])

    return emit


def _packed_bias(builder: Builder, bias: Value | None, block: int) -> Value | None:
    return None if bias is None else builder.emit("pack_channels", bias, block=block)
