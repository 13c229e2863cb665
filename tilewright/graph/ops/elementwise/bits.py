"""Numbers as bits: shifts, and reinterpretation as another type."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tilewright.graph.ir import Array, Value
from tilewright.graph.ir.op import op
from tilewright.graph.ir.types import STRING, TensorType, Type, dtype_of
from tilewright.graph.ops.elementwise.binary import BinaryRow, declare_binary
from tilewright.graph.ops.elementwise.elementwise import mapped
from tilewright.ir import DType, Expr, cast, const, reinterpret, select
from tilewright.support.errors import UserError
from tilewright.tensor import te


def _shifted(shift: Callable[[Expr, Expr], Expr], keeps_sign: bool) -> Callable[[Expr, Expr], Expr]:
    """A shift that is right for all counts: too large or negative ones leave only the sign."""

    def formula(x: Expr, count: Expr) -> Expr:
        bits = x.dtype.bits
        fits = count < const(bits, count.dtype)
        if count.dtype.is_signed:
            fits = fits & (count >= const(0, count.dtype))
        most = const(bits - 1, x.dtype)
        empty = shift(x, most) if keeps_sign and x.dtype.is_signed else const(0, x.dtype)
        return select(fits, shift(x, select(fits, count, most)), empty)

    return formula


SHIFTS: dict[str, BinaryRow] = {
    "left_shift": BinaryRow(np.left_shift, _shifted(lambda x, n: x << n, False), "integer"),
    "right_shift": BinaryRow(np.right_shift, _shifted(lambda x, n: x >> n, True), "integer"),
}
for _name, _row in SHIFTS.items():
    declare_binary(_name, _row)


@op
def bitcast(x: Value, *, dtype: DType) -> Type:
    """The bits of every element seen as another type of the same width."""
    if STRING in (x.dtype, dtype) or _width(x.dtype) != _width(dtype):
        raise UserError(
            f"{x} cannot be seen as {dtype}", reason="the widths of the elements must be equal"
        )
    return TensorType(dtype, x.shape)


@bitcast.reference
def bitcast_reference(x: Array, *, dtype: DType) -> Array:
    source = dtype_of(x.dtype)
    if source.bits >= 8 or source.is_bool:
        return x.copy().view(np.uint8 if dtype.is_bool else dtype.numpy).astype(dtype.numpy)
    mask = (1 << source.bits) - 1
    codes = x.view(np.uint8) if source.is_float else x.astype(np.int16)
    codes = (codes & mask).astype(np.uint8)
    if dtype.is_float:
        return codes.view(dtype.numpy)
    sign = 1 << (dtype.bits - 1)
    numbers = codes.astype(np.int16)
    return np.where(dtype.is_signed & (numbers >= sign), numbers - 2 * sign, numbers).astype(
        dtype.numpy
    )


@bitcast.compute
def bitcast_compute(x: te.Tensor, *, dtype: DType) -> te.Tensor:
    def seen(e: Expr) -> Expr:
        if DType.of("bool") in (e.dtype, dtype):
            return cast(reinterpret(cast(e, "uint8") if e.dtype.is_bool else e, "uint8"), dtype)
        return reinterpret(e, dtype)

    return mapped(seen, x, name="bitcast")


def _width(dtype: DType) -> int:
    return 8 if dtype.is_bool else dtype.bits
