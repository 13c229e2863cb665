"""Windows of signal processing: sums of a few cosines."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from tilewright.graph.ir import Array
from tilewright.graph.ir.attributes import Dim
from tilewright.graph.ir.op import op
from tilewright.graph.ir.types import TensorType, Type
from tilewright.graph.ops.reduce.reduced import accumulator
from tilewright.ir import DType, Expr
from tilewright.support.errors import UserError, nearest
from tilewright.tensor import te

#: The factors of the cosines of 0, 1, 2, … periods.
KINDS: Final = {
    "hann": (0.5, -0.5),
    "hamming": (25 / 46, -21 / 46),
    "blackman": (0.42, -0.5, 0.08),
}
_FLOAT32 = DType.of("float32")


@op
def window(
    *, size: Dim, kind: str = "hann", periodic: bool = True, dtype: DType = _FLOAT32
) -> Type:
    """A window of `size` elements: hann, hamming or blackman; one period is `size` elements long
    where it is periodic, else size - 1."""
    if kind not in KINDS:
        raise UserError(f"unknown window {kind}", remedy=nearest(kind, KINDS))
    if not dtype.is_float:
        raise UserError(f"a window is of floats, not {dtype}")
    return TensorType(dtype, [size])


@window.reference
def window_reference(*, size: int, kind: str, periodic: bool, dtype: DType) -> Array:
    period = max(1, size if periodic else size - 1)
    angle = 2 * np.pi * np.arange(size) / period
    total = sum(a * np.cos(k * angle) for k, a in enumerate(KINDS[kind]))
    return np.asarray(total).astype(dtype.numpy)


@window.compute
def window_compute(
    *, size: Dim, kind: str, periodic: bool, dtype: DType, out: TensorType
) -> te.Tensor:
    work = accumulator(dtype)
    extent = out.shape[0]
    period = te.cast(te.maximum(extent if periodic else extent - 1, 1), work)

    def element(i: Expr) -> Expr:
        angle = te.cast(i, work) * (2 * math.pi) / period
        total: Expr = te.const(0, work)
        for k, a in enumerate(KINDS[kind]):
            total = total + (te.const(a, work) if k == 0 else te.cos(angle * float(k)) * a)
        return te.cast(total, dtype)

    return te.compute([extent], element, name="window")
