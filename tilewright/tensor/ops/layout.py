"""Blocked layouts: the innermost dimension is a block of channels, as wide as a vector register.

Channels that do not fill the last block are zero.
"""

from __future__ import annotations

from tilewright.ir import Expr
from tilewright.tensor import te
from tilewright.tensor.ops.convolution import require_ranks
from tilewright.tensor.ops.extents import known, plus, static, times


def to_blocked(x: te.Tensor, block: int = 16, name: str = "to_blocked") -> te.Tensor:
    """N×C×H×W as N×(C/b)×H×W×b."""
    require_ranks(name, (x, 4))
    batch, channels, height, width = x.shape
    whole = _divides(channels, block)

    def element(n: Expr, co: Expr, h: Expr, w: Expr, ci: Expr) -> Expr:
        channel = co * block + ci
        value = x[n, channel, h, w]
        return value if whole else te.if_then_else(channel < channels, value, 0)

    return te.compute((batch, blocks_of(channels, block), height, width, block), element, name=name)


def from_blocked(
    x: te.Tensor, channels: int | None = None, name: str = "from_blocked"
) -> te.Tensor:
    """N×(C/b)×H×W×b as N×C×H×W; `channels` drops those that only fill the last block."""
    require_ranks(name, (x, 5))
    batch, outer, height, width, inner = x.shape
    block = static(inner, f"the block of {name}")
    count = times(outer, block) if channels is None else channels

    def element(n: Expr, c: Expr, h: Expr, w: Expr) -> Expr:
        return x[n, c // block, h, w, c % block]

    return te.compute((batch, count, height, width), element, name=name)


def pack_conv_weights(
    weight: te.Tensor, in_block: int = 16, out_block: int = 16, name: str = "pack_weights"
) -> te.Tensor:
    """O×I×KH×KW as (O/c)×(I/b)×KH×KW×b×c, the order in which a blocked convolution reads them."""
    require_ranks(name, (weight, 4))
    outputs, inputs, height, width = weight.shape
    whole = _divides(outputs, out_block) and _divides(inputs, in_block)

    def element(oo: Expr, io: Expr, h: Expr, w: Expr, ii: Expr, oi: Expr) -> Expr:
        o, i = oo * out_block + oi, io * in_block + ii
        inside, value = te.all_of(o < outputs, i < inputs), weight[o, i, h, w]
        return value if whole else te.if_then_else(inside, value, 0)

    shape = (blocks_of(outputs, out_block), blocks_of(inputs, in_block), height, width)
    return te.compute((*shape, in_block, out_block), element, name=name)


def blocks_of(extent: Expr, block: int) -> int | Expr:
    """How many blocks it takes."""
    return plus(extent, block - 1) // block


def _divides(extent: Expr, block: int) -> bool:
    value = known(extent)
    return isinstance(value, int) and value % block == 0
