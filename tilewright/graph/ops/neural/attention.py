"""Scaled dot-product attention.

Queries are B×H×L×D, keys B×G×M×D, values B×G×M×E; H is a multiple of G, and adjacent heads share
keys and values. Cached keys and values are prepended by the caller.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.graph.ir import Array, Value
from tilewright.graph.ir.attributes import Dim
from tilewright.graph.ir.op import op
from tilewright.graph.ir.types import TensorType, Type, known_dim
from tilewright.graph.ops.elementwise.elementwise import mapped, require_kind, require_same_dtype
from tilewright.graph.ops.reduce.reduced import accumulator, reduce_over
from tilewright.graph.sizes.agreement import require_equal, require_multiple, require_same_shape
from tilewright.graph.sizes.broadcast import broadcast_index, require_broadcast_to
from tilewright.ir import Expr
from tilewright.support.errors import UserError
from tilewright.tensor import te

#: The stages of the scores that can be results.
STAGES = ("none", "scaled", "capped", "masked", "softmax")


@op
def attention(
    q: Value,
    k: Value,
    v: Value,
    mask: Value | None = None,
    lengths: Value | None = None,
    *,
    scale: float | None = None,
    causal: bool = False,
    past_length: Dim = 0,
    left_window: int = -1,
    right_window: int = -1,
    softcap: float = 0.0,
    scores: str = "none",
    narrow_shares: bool = False,
) -> Type | tuple[Type, ...]:
    """softmax(q @ k.T * scale + mask) @ v for each head.

    `mask` is broadcast to B×H×L×M: bool (True attends) or what is added. Query i stands at
    position i + past_length; where `lengths` gives how many keys of each batch count, the last
    query stands at the last of them. `causal` hides later keys, windows (unless -1) those further
    away. `scale` is 1 / sqrt(D) unless given; `softcap` bounds the scores by tanh. A query that
    sees nothing gives 0. `scores` names a stage of the scores that is returned too. With
    `narrow_shares` the softmax is rounded to the type of `v` before it is multiplied.
    """
    require_kind("float", q, k, v)
    require_same_dtype(q, k, v)
    _check_shapes(q, k, v)
    if scores not in STAGES:
        raise UserError(f"attention has no scores {scores!r}", remedy=f"use {', '.join(STAGES)}")
    seen = TensorType(q.dtype, [*q.shape[:3], k.shape[2]])
    if mask is not None:
        require_kind("bool" if mask.dtype.is_bool else "float", mask)
        require_broadcast_to(seen.shape, mask.shape, "the mask")
    if lengths is not None:
        require_same_shape(lengths.shape, q.shape[:1], "lengths and batches")
    result = TensorType(q.dtype, [*q.shape[:3], v.shape[3]])
    return result if scores == "none" else (result, seen)


def _check_shapes(q: Value, k: Value, v: Value) -> None:
    if not q.ndim == k.ndim == v.ndim == 4:
        raise UserError(f"attention takes tensors of 4 dimensions, not {q}, {k}, {v}")
    require_multiple(q.shape[1], k.shape[1], "heads that share heads of keys")
    for n in (0, 3):
        require_equal(q.shape[n], k.shape[n], f"dimension {n} of q and of k")
    for n in (0, 1, 2):
        require_equal(k.shape[n], v.shape[n], f"dimension {n} of k and of v")


# ---- reference ----------------------------------------------------------------------------------


@attention.reference
def attention_reference(
    q: Array,
    k: Array,
    v: Array,
    mask: Array | None,
    lengths: Array | None,
    *,
    scale: float | None,
    causal: bool,
    past_length: int,
    left_window: int,
    right_window: int,
    softcap: float,
    scores: str,
    narrow_shares: bool,
) -> Any:
    share = q.shape[1] // k.shape[1]
    keys, values = (np.repeat(x, share, axis=1).astype(np.float64) for x in (k, v))
    factor = 1 / math.sqrt(q.shape[3]) if scale is None else scale
    stages: dict[str, Array] = {}
    with np.errstate(all="ignore"):
        stages["scaled"] = q.astype(np.float64) @ np.swapaxes(keys, 2, 3) * factor
        capped = np.tanh(stages["scaled"] / softcap) * softcap if softcap else stages["scaled"]
        stages["capped"] = capped
        stages["masked"] = capped + _bias_reference(
            capped.shape, mask, lengths, causal, past_length, (left_window, right_window)
        )
        greatest: Array = stages["masked"].max(axis=-1, keepdims=True, initial=-np.inf)
        powers = np.exp(stages["masked"] - np.where(np.isneginf(greatest), 0, greatest))
        total = powers.sum(axis=-1, keepdims=True)
        stages["softmax"] = np.where(total == 0, 0, powers / np.where(total == 0, 1, total))
    shares = stages["softmax"]
    shares = shares.astype(v.dtype).astype(np.float64) if narrow_shares else shares
    y = (shares @ values).astype(q.dtype)
    return y if scores == "none" else (y, stages[scores].astype(q.dtype))


def _bias_reference(
    shape: Sequence[int],
    mask: Array | None,
    lengths: Array | None,
    causal: bool,
    past_length: int,
    windows: tuple[int, int],
) -> Array:
    batch, _, queries, keys = shape
    bias = np.zeros(shape)
    if mask is not None:
        is_bool = mask.dtype == np.bool_
        bias = bias + (np.where(mask, 0.0, -np.inf) if is_bool else mask.astype(np.float64))
    ends = np.full(batch, past_length + queries) if lengths is None else lengths.ravel()
    at = np.arange(queries)[:, None] + (ends - queries).reshape(-1, 1, 1, 1)
    key = np.arange(keys)
    hidden = np.zeros((batch, 1, queries, keys), bool)
    hidden |= (key > at) & causal
    hidden |= (key < at - windows[0]) & (windows[0] >= 0)
    hidden |= (key > at + windows[1]) & (windows[1] >= 0)
    if lengths is not None:
        hidden |= key >= ends.reshape(-1, 1, 1, 1)
    return np.where(hidden, -np.inf, bias)


# ---- compute ------------------------------------------------------------------------------------


@attention.compute
def attention_compute(
    q: te.Tensor,
    k: te.Tensor,
    v: te.Tensor,
    mask: te.Tensor | None,
    lengths: te.Tensor | None,
    *,
    scale: float | None,
    causal: bool,
    past_length: Dim,
    left_window: int,
    right_window: int,
    softcap: float,
    scores: str,
    narrow_shares: bool,
) -> Any:
    work = accumulator(q.dtype)
    products = _products(q, k)
    stages: dict[str, te.Tensor] = {}
    factor = _factor(q.shape[3], scale, work)
    stages["scaled"] = mapped(lambda e: e * factor, products, name="scaled")
    stages["capped"] = stages["scaled"]
    if softcap:
        stages["capped"] = mapped(
            lambda e: te.tanh(e / softcap) * softcap, stages["scaled"], name="capped"
        )
    windows = (left_window, right_window)
    stages["masked"] = _masked(stages["capped"], mask, lengths, causal, past_length, windows)
    is_narrow = narrow_shares and v.dtype is not work
    stages["softmax"] = _softmax(stages["masked"], is_narrow and scores != "softmax")
    shares = stages["softmax"]
    if is_narrow:
        shares = mapped(lambda e: te.cast(e, v.dtype), shares, name="narrow_shares")
    y = _weighted(shares, v, q.dtype)
    if scores == "none":
        return y
    return y, mapped(lambda e: te.cast(e, q.dtype), stages[scores], name="scores")


def _factor(depth: Expr, scale: float | None, work: Any) -> Expr:
    number = known_dim(depth)
    if scale is None and number is None:
        return te.rsqrt(te.cast(depth, work))
    return te.const(1 / math.sqrt(number or 1) if scale is None else scale, work)


def _products(q: te.Tensor, k: te.Tensor) -> te.Tensor:
    """q @ k.T, summed in float32 at least."""
    work, d = accumulator(q.dtype), te.reduce_axis(q.shape[3], name="d")

    def element(b: Expr, h: Expr, i: Expr, j: Expr) -> Any:
        key = k[b, _shared(h, q.shape[1], k.shape[1]), j, d]
        return te.sum(te.cast(q[b, h, i, d], work) * te.cast(key, work), axis=d)

    return te.compute((*q.shape[:3], k.shape[2]), element, name="scores")


def _shared(head: Expr, heads: Expr, shared: Expr) -> Expr:
    """The head of the keys that a head of the queries uses."""
    if heads is shared:
        return head
    h, s = known_dim(heads), known_dim(shared)
    if h is not None and s is not None:
        return te.floordiv(head, h // s)
    return te.floordiv(head * shared, heads)


def _masked(
    scores: te.Tensor,
    mask: te.Tensor | None,
    lengths: te.Tensor | None,
    causal: bool,
    past_length: Dim,
    windows: tuple[int, int],
) -> te.Tensor:
    if mask is None and lengths is None and not causal and max(windows) < 0:
        return scores
    work, nothing = scores.dtype, te.const(float("-inf"), scores.dtype)

    def element(*i: Expr) -> Expr:
        value: Expr = scores[i]
        if mask is not None:
            given = mask[broadcast_index(mask.shape, scores.shape, i)]
            is_bool = mask.dtype.is_bool
            value = te.select(given, value, nothing) if is_bool else value + te.cast(given, work)
        visible = _visible(i, scores.shape, lengths, causal, past_length, windows)
        return te.select(te.all_of(*visible), value, nothing) if visible else value

    return te.compute(scores.shape, element, name="masked")


def _visible(
    i: Sequence[Expr],
    shape: Sequence[Expr],
    lengths: te.Tensor | None,
    causal: bool,
    past_length: Dim,
    windows: tuple[int, int],
) -> list[Expr]:
    """The conditions for a query to attend to a key."""
    key, conditions = i[3], list[Expr]()
    at = i[2] + past_length
    if lengths is not None:
        end = te.cast(lengths[(i[0], *[0] * (lengths.ndim - 1))], "int64")
        at = i[2] + (end - shape[2])
        conditions.append(key < end)
    conditions += [key <= at] if causal else []
    conditions += [key >= at - windows[0]] if windows[0] >= 0 else []
    conditions += [key <= at + windows[1]] if windows[1] >= 0 else []
    return conditions


def _softmax(scores: te.Tensor, is_narrow: bool) -> te.Tensor:
    """Along the keys; zeros for a query that attends to none. `is_narrow`: 16 bits suffice."""
    zero = te.const(0, scores.dtype)
    greatest = reduce_over(te.max, scores, (3,), True, name="greatest")

    def power(e: Expr, m: Expr) -> Expr:
        shift = te.select(m == te.const(float("-inf"), m.dtype), zero, m)
        return (te.coarse_exp if is_narrow else te.exp)(te.minimum(e - shift, 0))

    powers = mapped(power, scores, greatest, name="powers")
    total = reduce_over(te.sum, powers, (3,), True, name="total")

    def share(e: Expr, t: Expr) -> Expr:
        return e * te.select(t == zero, zero, 1 / t)

    return mapped(share, powers, total, name="shares")


def _weighted(shares: te.Tensor, v: te.Tensor, result: Any) -> te.Tensor:
    work, m = accumulator(shares.dtype), te.reduce_axis(v.shape[2], name="m")

    def element(b: Expr, h: Expr, i: Expr, j: Expr) -> Any:
        value = v[b, _shared(h, shares.shape[1], v.shape[1]), m, j]
        return te.sum(te.cast(shares[b, h, i, m], work) * te.cast(value, work), axis=m)

    total = te.compute((*shares.shape[:3], v.shape[3]), element, name="attention")
    if total.dtype is result:
        return total
    return mapped(lambda e: te.cast(e, result), total, name="attention_result")
