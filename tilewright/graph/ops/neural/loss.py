"""Losses of classification: N×C×… scores or log-probabilities against N×… classes."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.graph.ir import Array, Value
from tilewright.graph.ir.op import op
from tilewright.graph.ir.types import TensorType, Type
from tilewright.graph.ops.elementwise.elementwise import mapped, require_kind, require_same_dtype
from tilewright.graph.ops.reduce.reduced import accumulator, reduce_over
from tilewright.graph.sizes.agreement import require_same_shape
from tilewright.ir import Expr
from tilewright.support.errors import UserError
from tilewright.tensor import te

REDUCTIONS = ("none", "mean", "sum")


@op
def nll_loss(
    x: Value,
    target: Value,
    weight: Value | None = None,
    *,
    reduction: str = "mean",
    ignore_index: int | None = None,
) -> Type:
    """-x[n, target, …] * weight[target] for log-probabilities x; 0 where the target is
    `ignore_index`. `reduction`: none, sum, or the mean weighted by the weights."""
    _check(x, target, weight, reduction)
    return TensorType(x.dtype, target.shape if reduction == "none" else ())


@nll_loss.reference
def nll_loss_reference(
    x: Array, target: Array, weight: Array | None, *, reduction: str, ignore_index: int | None
) -> Array:
    wide = x.astype(np.float64)
    factors = np.ones(x.shape[1]) if weight is None else weight.astype(np.float64)
    ignored = np.zeros(target.shape, bool) if ignore_index is None else target == ignore_index
    safe = np.where(ignored, 0, target)
    picked = np.take_along_axis(wide, np.expand_dims(safe, 1), 1).squeeze(1)
    shares = np.where(ignored, 0.0, factors[safe])
    losses = np.where(ignored, 0.0, -picked * shares)
    with np.errstate(all="ignore"):
        result = {
            "none": lambda: losses,
            "sum": losses.sum,
            "mean": lambda: losses.sum() / shares.sum(),
        }[reduction]()
    return np.asarray(result).astype(x.dtype)


@nll_loss.compute
def nll_loss_compute(
    x: te.Tensor,
    target: te.Tensor,
    weight: te.Tensor | None,
    *,
    reduction: str,
    ignore_index: int | None,
) -> te.Tensor:
    work = accumulator(x.dtype)
    zero, one = te.const(0, work), te.const(1, work)

    def is_counted(e: Expr) -> Expr:
        return te.all_of() if ignore_index is None else e != ignore_index

    def share(*i: Expr) -> Expr:
        at: Expr = target[i]
        factor = one if weight is None else te.cast(weight[at], work)
        return te.select(is_counted(at), factor, zero)

    def loss(*i: Expr) -> Expr:
        at: Expr = target[i]
        picked = te.cast(x[(i[0], at, *i[1:])], work)
        return te.select(is_counted(at), -(picked * share(*i)), zero)

    losses = te.compute(target.shape, loss, name="losses")
    axes = tuple(range(target.ndim))
    if reduction == "none":
        return mapped(lambda e: te.cast(e, x.dtype), losses, name="loss")
    total = reduce_over(te.sum, losses, axes, False, name="total")
    if reduction == "sum":
        return mapped(lambda e: te.cast(e, x.dtype), total, name="loss")
    shares = te.compute(target.shape, share, name="shares")
    counted = reduce_over(te.sum, shares, axes, False, name="counted")
    return mapped(lambda e, c: te.cast(e / c, x.dtype), total, counted, name="loss")


@op
def softmax_cross_entropy(
    x: Value,
    target: Value,
    weight: Value | None = None,
    *,
    reduction: str = "mean",
    ignore_index: int | None = None,
) -> tuple[Type, Type]:
    """The loss of scores x by `nll_loss` of their log_softmax, and the latter."""
    _check(x, target, weight, reduction)
    return TensorType(x.dtype, target.shape if reduction == "none" else ()), x.type


@softmax_cross_entropy.reference
def softmax_cross_entropy_reference(
    x: Array, target: Array, weight: Array | None, **options: Any
) -> tuple[Array, Array]:
    wide = x.astype(np.float64)
    shifted = wide - wide.max(axis=1, keepdims=True)
    shares = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    loss = nll_loss_reference(shares, target, weight, **options)
    return loss.astype(x.dtype), shares.astype(x.dtype)


@softmax_cross_entropy.decompose
def softmax_cross_entropy_decompose(
    b: Any, x: Value, target: Value, weight: Value | None, **options: Any
) -> tuple[Value, Value]:
    shares = b.log_softmax(x, axis=1)
    return b.nll_loss(shares, target, weight, **options), shares


def _check(x: Value, target: Value, weight: Value | None, reduction: str) -> None:
    require_kind("float", x)
    require_kind("integer", target)
    if weight is not None:
        require_same_dtype(x, weight)
    if x.ndim < 2 or target.ndim != x.ndim - 1:
        raise UserError(f"classes {target} do not fit scores {x}")
    require_same_shape(target.shape, [x.shape[0], *x.shape[2:]], "classes and scores")
    if weight is not None:
        require_same_shape(weight.shape, x.shape[1:2], "weights and classes")
    if reduction not in REDUCTIONS:
        raise UserError(f"there is no reduction {reduction!r}", remedy="use none, mean or sum")
