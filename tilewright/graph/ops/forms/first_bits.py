"""Elements of float32 rounded to the bits that products of TF32 use."""

from __future__ import annotations

from typing import Final

import numpy as np

from tilewright.graph.ir import Array, Value
from tilewright.graph.ir.op import op
from tilewright.graph.ir.types import Type
from tilewright.graph.layouts.images import elementwise_layouts
from tilewright.graph.ops.elementwise.elementwise import mapped, require_kind
from tilewright.ir import DType, Expr
from tilewright.support.errors import UserError
from tilewright.tensor import te

#: Bits of a fraction that are dropped. Adding a number to itself shifted left by this many bits
#: rounds them away; numbers from the limit on would overflow.
_DROPPED: Final = 13
_FACTOR: Final = (1 << _DROPPED) + 1
_LIMIT: Final = 2.0**100


@op
def first_bits(x: Value) -> Type:
    """Every element rounded to ten bits of its fraction; those of 2**100 and more stay."""
    require_kind("float", x)
    if x.dtype is not DType.of("float32"):
        raise UserError(f"{x} has no bits for TF32", reason="it is not of float32")
    return x.type


@first_bits.reference
def first_bits_reference(x: Array) -> Array:
    with np.errstate(over="ignore", invalid="ignore"):
        large = x * np.float32(_FACTOR)
        made = large - (large - x)
    return np.where(np.abs(x) < _LIMIT, made, x)


@first_bits.compute
def first_bits_compute(x: te.Tensor) -> te.Tensor:
    def element(e: Expr) -> Expr:
        large = e * te.const(float(_FACTOR), e.dtype)
        return te.select(te.abs(e) < te.const(_LIMIT, e.dtype), large - (large - e), e)

    return mapped(element, x, name="first_bits")


first_bits.layouts(elementwise_layouts)
