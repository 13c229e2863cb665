"""Reductions over axes, one row each: reference, what is combined, and the final formula.

`axes` counts from the end where it is negative; None means all axes, an empty list none. Of no
elements, the sum is 0, the product 1, and the maximum minus infinity (or the least number).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.graph.building.builder import Builder
from tilewright.graph.ir import Array, Call, Value
from tilewright.graph.ir.attributes import Ints
from tilewright.graph.ir.op import OpDef, op
from tilewright.graph.ir.types import TensorType, Type
from tilewright.graph.layouts.images import PLAIN, Blocking, Form, channels_of
from tilewright.graph.ops.elementwise.elementwise import mapped, require_kind
from tilewright.graph.ops.reduce.reduced import (
    accumulator,
    count_of,
    reduce_over,
    reduced_shape,
    sorted_axes,
)
from tilewright.ir import DType, Expr
from tilewright.tensor import te


@dataclass(frozen=True)
class ReduceFormula:
    """NumPy's function of (x, axes); how elements are prepared, combined and finished."""

    reference: Callable[[Array, Ints], Any]
    combine: Callable[..., Any]
    element: Callable[[Expr], Expr] | None = None
    finish: Callable[[Expr], Expr] | None = None
    kind: str = "number"
    #: Whether it goes through real numbers, so that integers are reduced as floats.
    real: bool = False


def _extreme(name: str) -> Callable[..., Any]:
    def reference(x: Array, axes: Ints) -> Any:
        return getattr(np, name)(x, axis=axes, keepdims=True, initial=_worst(x.dtype, name))

    return reference


def _worst(dtype: Any, name: str) -> Any:
    element = DType.of(dtype)
    if element.is_float:
        return dtype.type(-np.inf if name == "max" else np.inf)
    return dtype.type(element.min_value if name == "max" else element.max_value)


def _summed(prepare: Callable[[Any], Any] | None = None) -> Callable[..., Any]:
    def reference(x: Array, axes: Ints) -> Any:
        return np.sum(prepare(x) if prepare else x, axis=axes, keepdims=True, dtype=x.dtype)

    return reference


def _square(x: Any) -> Any:
    return x * x


def _magnitude(e: Expr) -> Expr:
    return te.abs(e) if e.dtype.is_signed else e


REDUCTIONS: dict[str, ReduceFormula] = {
    "sum": ReduceFormula(_summed(), te.sum),
    "prod": ReduceFormula(
        lambda x, axes: np.prod(x, axis=axes, keepdims=True, dtype=x.dtype), te.prod
    ),
    "max": ReduceFormula(_extreme("max"), te.max),
    "min": ReduceFormula(_extreme("min"), te.min),
    "l1": ReduceFormula(_summed(np.abs), te.sum, _magnitude),
    "l2": ReduceFormula(
        lambda x, axes: np.sqrt(_summed(_square)(x, axes)), te.sum, _square, te.sqrt, real=True
    ),
    "sum_square": ReduceFormula(_summed(_square), te.sum, _square),
    "log_sum": ReduceFormula(
        lambda x, axes: np.log(_summed()(x, axes)), te.sum, None, te.log, real=True
    ),
    "any": ReduceFormula(lambda x, axes: np.any(x, axis=axes, keepdims=True), te.any, kind="bool"),
    "all": ReduceFormula(lambda x, axes: np.all(x, axis=axes, keepdims=True), te.all, kind="bool"),
}
#: The maximum and the minimum of truth values.
_OF_BOOL: dict[str, Callable[..., Any]] = {"max": te.any, "min": te.all}


def _working_type(dtype: DType, real: bool) -> DType:
    if real and not dtype.is_float:
        return DType.of("float64")
    return accumulator(dtype)


def _type(x: Value, axes: Ints | None, keepdims: bool) -> Type:
    return TensorType(x.dtype, reduced_shape(x.shape, sorted_axes(axes, x.ndim), keepdims))


def _by_numpy(
    function: Callable[[Array, Ints], Any], x: Array, axes: Ints | None, keepdims: bool, real: bool
) -> Array:
    over = sorted_axes(axes, x.ndim)
    dtype = _working_type(DType.of(x.dtype), real).numpy
    with np.errstate(all="ignore"):
        result = np.asarray(function(x.astype(dtype, copy=False), over)).astype(x.dtype)
    return result if keepdims else np.asarray(result.squeeze(over))


def _reduced(row: ReduceFormula, x: te.Tensor, axes: Ints, keepdims: bool, name: str) -> te.Tensor:
    work = _working_type(x.dtype, row.real)

    def element(e: Expr) -> Expr:
        e = te.cast(e, work)
        return row.element(e) if row.element else e

    def finish(e: Expr) -> Expr:
        return te.cast(row.finish(e) if row.finish else e, x.dtype)

    combine = _OF_BOOL.get(name, row.combine) if x.dtype.is_bool else row.combine
    total = reduce_over(combine, x, axes, keepdims, element, name)
    return (
        mapped(finish, total, name=f"{name}_result") if row.finish or work is not x.dtype else total
    )


def _layouts(blocking: Blocking, call: Call, out: TensorType) -> Iterator[Form]:
    """Reductions over spatial axes; the result is plain where no spatial axes are left, or where
    whole images are reduced."""
    (x,) = call.args
    assert x is not None
    over, keepdims = sorted_axes(call.attrs["axes"], x.ndim), call.attrs["keepdims"]
    if over == tuple(range(1, x.ndim)):
        yield from _layouts_of_images(blocking, call, out)
    rest = [a for a in range(2, x.ndim) if a not in over]
    if not over or over[0] < 2 or (rest and not keepdims):
        return

    def emit(builder: Builder, args: Sequence[Any]) -> Any:
        reduced = builder.emit(call.op, *args, axes=over, keepdims=True)
        return reduced if keepdims else builder.emit("reshape", reduced, shape=out.shape)

    zero = np.zeros((1,) * x.ndim, x.dtype.numpy)
    keeps_zero = not np.any(call.op.evaluate([zero], call.attrs)[0])
    for block in blocking.blocks(x.type):
        whole = (channels_of(x.type) or 0) % block == 0
        if whole or (keepdims and keeps_zero):
            yield Form((block,), block if keepdims else PLAIN, 0.0, emit)


def _layouts_of_images(blocking: Blocking, call: Call, out: TensorType) -> Iterator[Form]:
    """Reductions over channels and pixels, for blocks without padding."""
    (x,) = call.args
    assert x is not None
    axes = tuple(range(1, x.ndim + 1))

    def emit(builder: Builder, args: Sequence[Any]) -> Any:
        reduced = builder.emit(call.op, *args, axes=axes, keepdims=True)
        return builder.emit("reshape", reduced, shape=out.shape)

    for block in blocking.blocks(x.type):
        if (channels_of(x.type) or 0) % block == 0:
            yield Form((block,), PLAIN, 0.0, emit)


def _declare(name: str, row: ReduceFormula) -> OpDef:
    def infer(x: Value, *, axes: Ints | None = None, keepdims: bool = False) -> Type:
        require_kind("computable" if name in _OF_BOOL else row.kind, x)
        return _type(x, axes, keepdims)

    infer.__name__, infer.__doc__ = name, f"The {name} over `axes`."
    declared = op(infer)

    @declared.reference
    def reference(x: Array, *, axes: Ints | None, keepdims: bool) -> Array:
        return _by_numpy(row.reference, x, axes, keepdims, row.real)

    @declared.compute
    def compute(x: te.Tensor, *, axes: Ints | None, keepdims: bool) -> te.Tensor:
        return _reduced(row, x, sorted_axes(axes, x.ndim), keepdims, name)

    del reference, compute
    declared.layouts(_layouts)
    return declared


for _name, _row in REDUCTIONS.items():
    _declare(_name, _row)


# ---- those that need more than one pass, or the number of elements ------------------------------


@op
def mean(x: Value, *, axes: Ints | None = None, keepdims: bool = False) -> Type:
    """The mean over `axes`; of integers, rounded to zero."""
    require_kind("number", x)
    return _type(x, axes, keepdims)


@mean.reference
def mean_reference(x: Array, *, axes: Ints | None, keepdims: bool) -> Array:
    def function(values: Array, over: Ints) -> Any:
        total = np.sum(values, axis=over, keepdims=True, dtype=values.dtype)
        count = int(np.prod([values.shape[a] for a in over], dtype=np.int64))
        if values.dtype.kind == "f":
            return total / np.asarray(count, values.dtype)
        return np.trunc(total / count) if count else np.zeros_like(total)

    return _by_numpy(function, x, axes, keepdims, False)


@mean.compute
def mean_compute(x: te.Tensor, *, axes: Ints | None, keepdims: bool) -> te.Tensor:
    over, work = sorted_axes(axes, x.ndim), accumulator(x.dtype)
    count = count_of(x.shape, over)
    total = reduce_over(te.sum, x, over, keepdims, lambda e: te.cast(e, work), "mean_sum")

    def quotient(e: Expr) -> Expr:
        divisor = te.cast(count, work)
        return te.cast(e / divisor if work.is_float else te.truncdiv(e, divisor), x.dtype)

    return mapped(quotient, total, name="mean")


mean.layouts(_layouts)


@op
def log_sum_exp(x: Value, *, axes: Ints | None = None, keepdims: bool = False) -> Type:
    """log(sum(exp(x))) over `axes`, shifted by the greatest element, lest it overflow."""
    require_kind("number", x)
    return _type(x, axes, keepdims)


@log_sum_exp.reference
def log_sum_exp_reference(x: Array, *, axes: Ints | None, keepdims: bool) -> Array:
    def function(values: Array, over: Ints) -> Any:
        greatest = np.max(values, axis=over, keepdims=True, initial=-np.inf)
        shift = np.where(np.isfinite(greatest), greatest, 0).astype(values.dtype)
        return np.log(np.sum(np.exp(values - shift), axis=over, keepdims=True)) + shift

    return _by_numpy(function, x, axes, keepdims, True)


@log_sum_exp.compute
def log_sum_exp_compute(x: te.Tensor, *, axes: Ints | None, keepdims: bool) -> te.Tensor:
    over, work = sorted_axes(axes, x.ndim), _working_type(x.dtype, True)
    greatest = reduce_over(te.max, x, over, True, lambda e: te.cast(e, work), "log_sum_exp_max")

    def shift(e: Expr) -> Expr:
        return te.select(te.isfinite(e), e, te.const(0, work))

    powers = mapped(
        lambda e, m: te.exp(te.cast(e, work) - shift(m)), x, greatest, name="log_sum_exp_exp"
    )
    total = reduce_over(te.sum, powers, over, True, name="log_sum_exp_sum")
    kept = [a for a in range(x.ndim) if keepdims or a not in over]

    def element(*i: Expr) -> Expr:
        own = dict(zip(kept, i, strict=True))
        at = tuple(te.const(0) if a in over else own[a] for a in range(x.ndim))
        return te.cast(te.log(total[at]) + shift(greatest[at]), x.dtype)

    return te.compute(reduced_shape(x.shape, over, keepdims), element, name="log_sum_exp")
