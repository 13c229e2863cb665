"""Positions of the greatest and the least elements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.graph.ir import Array, Value
from tilewright.graph.ir.op import OpDef, op
from tilewright.graph.ir.types import TensorType, Type
from tilewright.graph.ops.elementwise.elementwise import require_kind
from tilewright.graph.ops.reduce.reduced import reduced_shape
from tilewright.graph.sizes.agreement import require_at_most
from tilewright.graph.sizes.axes import axis_of
from tilewright.ir import Expr
from tilewright.tensor import te

ARG_REDUCTIONS: dict[str, Callable[..., Any]] = {"argmax": te.argmax, "argmin": te.argmin}


def _declare(name: str, reduction: Callable[..., Any]) -> OpDef:
    def infer(x: Value, *, axis: int = 0, keepdims: bool = False, last: bool = False) -> Type:
        require_kind("number", x)
        axis = axis_of(axis, x.ndim)
        require_at_most(1, x.shape[axis], f"elements along axis {axis}, of which one is sought")
        return TensorType("int64", reduced_shape(x.shape, (axis,), keepdims))

    infer.__name__ = name
    infer.__doc__ = f"The index that {name} has along `axis`; of equals the first, or the `last`."
    declared = op(infer)

    @declared.reference
    def reference(x: Array, *, axis: int, keepdims: bool, last: bool) -> Array:
        axis = axis_of(axis, x.ndim)
        function = getattr(np, name)
        if not last:
            return np.asarray(function(x, axis=axis, keepdims=keepdims)).astype(np.int64)
        reversed_ = function(np.flip(x, axis), axis=axis, keepdims=keepdims)
        return np.asarray(x.shape[axis] - 1 - reversed_, np.int64)

    @declared.compute
    def compute(x: te.Tensor, *, axis: int, keepdims: bool, last: bool) -> te.Tensor:
        return _position(reduction, x, axis_of(axis, x.ndim), keepdims, last, name)

    del reference, compute
    return declared


def _position(
    reduction: Callable[..., Any], x: te.Tensor, axis: int, keepdims: bool, last: bool, name: str
) -> te.Tensor:
    k = te.reduce_axis(x.shape[axis], name="k")
    end = x.shape[axis] - 1

    def element(*i: Expr) -> Any:
        before, after = i[:axis], i[axis + keepdims :]
        # Counting from the end, the first of equals is the last.
        place = end - k.var if last else k.var
        return reduction(x[(*before, place, *after)], axis=k)

    found = te.compute(reduced_shape(x.shape, (axis,), keepdims), element, name=name)
    if not last:
        return found
    return te.compute(found.shape, lambda *i: end - found[i], name=f"{name}_last")


for _name, _reduction in ARG_REDUCTIONS.items():
    _declare(_name, _reduction)
