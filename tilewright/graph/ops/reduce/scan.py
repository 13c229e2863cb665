"""Running sums and products along an axis."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from tilewright.graph.ir import Array, Value
from tilewright.graph.ir.op import OpDef, op
from tilewright.graph.ir.types import Type
from tilewright.graph.ops.elementwise.elementwise import require_kind
from tilewright.graph.ops.tensor.loops import Indices, nest
from tilewright.graph.sizes.axes import axis_of
from tilewright.ir import Buffer, Expr, Function, Stmt, Store, const, select


class Cumulative(NamedTuple):
    """One operator: NumPy's function, what combines two elements, what it starts with."""

    reference: Callable[..., Any]
    combine: Callable[[Expr, Expr], Expr]
    start: int


SCANS: dict[str, Cumulative] = {
    "cumsum": Cumulative(np.cumsum, operator.add, 0),
    "cumprod": Cumulative(np.cumprod, operator.mul, 1),
}


def _declare(name: str, row: Cumulative) -> OpDef:
    def infer(x: Value, *, axis: int = 0, exclusive: bool = False, reverse: bool = False) -> Type:
        require_kind("number", x)
        axis_of(axis, x.ndim)
        return x.type

    infer.__name__ = name
    infer.__doc__ = (
        f"The running {name[3:]} along `axis`; `exclusive` leaves each element itself out, "
        "`reverse` starts at the end."
    )
    declared = op(infer)

    @declared.reference
    def reference(x: Array, *, axis: int, exclusive: bool, reverse: bool) -> Array:
        reversed_ = np.flip(x, axis) if reverse else x
        with np.errstate(all="ignore"):
            total = row.reference(reversed_, axis=axis, dtype=x.dtype)
        if exclusive:
            total = np.roll(total, 1, axis)
            np.moveaxis(total, axis, 0)[:1] = row.start
        return (np.flip(total, axis) if reverse else total).copy()

    @declared.kernel
    def kernel(x: Value, *, axis: int, exclusive: bool, reverse: bool) -> Function:
        given = Buffer("x", x.dtype, x.shape)
        out = Buffer(name, x.dtype, x.shape)
        step = _ScanElement(row, axis_of(axis, x.ndim), exclusive, reverse)
        return Function(name, (given, out), nest(x.shape, lambda i: step(given, out, i)))

    del reference, kernel
    return declared


class _ScanElement(NamedTuple):
    """One element of a scan, from the one before it."""

    scan: Cumulative
    axis: int
    exclusive: bool
    reverse: bool

    def __call__(self, x: Buffer, out: Buffer, i: Indices) -> Stmt:
        here, before = self._place(x, i, 0), self._place(x, i, 1)
        first = const(self.scan.start, x.dtype) if self.exclusive else x[here]
        rest = self.scan.combine(out[before], x[before if self.exclusive else here])
        return Store(out, here, select(i[self.axis] > 0, rest, first))

    def _place(self, x: Buffer, i: Indices, back: int) -> Indices:
        at = i[self.axis] - back
        place = x.shape[self.axis] - 1 - at if self.reverse else at
        return (*i[: self.axis], place, *i[self.axis + 1 :])


for _name, _row in SCANS.items():
    _declare(_name, _row)
