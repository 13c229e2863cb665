"""Reductions, sorting, and running operations along an axis."""

from __future__ import annotations

from typing import Any

from tilewright.frontends.torch.node import Node
from tilewright.frontends.torch.ops.elementwise import numeric, truth
from tilewright.frontends.torch.table import converts
from tilewright.graph import Value, product


def keeps(n: Node) -> bool:
    """Whether reduced dimensions stay."""
    return bool(n.get("keepdim", False))


@converts("sum", "prod", "mean", "nansum")
def reduced(n: Node) -> Value:
    x, name = n.tensor("self", n.dtype), n.op.partition(".")[0]
    if name == "nansum":
        x, name = n.builder.where(n.builder.isnan(x), n.like(0, x), x), "sum"
    if not x.ndim:
        return x
    return n.builder.emit(name, x, axes=n.axes("dim"), keepdims=keeps(n))


@converts("any", "all")
def any_or_all(n: Node) -> Value:
    x, name = truth(n, n.tensor("self")), n.op.partition(".")[0]
    if not x.ndim:
        return n.cast(x, n.dtype)
    axes = n.axes("dim")
    if n.get("dim") == []:
        axes = list(range(x.ndim))
    return n.cast(n.builder.emit(name, x, axes=axes, keepdims=keeps(n)), n.dtype)


@converts("amax", "amin", "max", "min")
def extreme(n: Node) -> Any:
    name = n.op.partition(".")[0]
    is_max = name.endswith("max")
    if n.op in ("max.dim", "min.dim"):
        return _extreme_and_place(n, is_max)
    if n.op in ("max.other", "min.other"):
        x, y = n.operands("self", "other", dtype=n.dtype)
        return n.builder.emit("maximum" if is_max else "minimum", x, y)
    return extreme_of(n, n.tensor("self"), n.axes("dim"), is_max, keeps(n))


def extreme_of(n: Node, x: Value, axes: list[int], is_max: bool, keepdims: bool) -> Value:
    """The greatest or least elements along axes; NaN is above and below all."""
    b = n.builder
    if not x.ndim:
        return x
    if x.dtype.is_bool:
        return b.emit("any" if is_max else "all", x, axes=axes, keepdims=keepdims)
    result = b.emit("max" if is_max else "min", x, axes=axes, keepdims=keepdims)
    if not x.dtype.is_float:
        return result
    bad = b.any(b.isnan(x), axes=axes, keepdims=keepdims)
    return b.where(bad, n.like(float("nan"), x), result)


def _extreme_and_place(n: Node, is_max: bool) -> list[Value]:
    x, axis, b = n.tensor("self"), n.axis("dim"), n.builder
    if not x.ndim:
        return [x, n.full(0, [], "int64")]
    place = place_of(n, x, axis, is_max)
    value = b.gather_elements(x, place, axis=axis)
    if keeps(n):
        return [value, place]
    return [b.squeeze(value, axes=[axis]), b.squeeze(place, axes=[axis])]


def place_of(n: Node, x: Value, axis: int, is_max: bool) -> Value:
    """The position of the first of the greatest or least elements, the axis kept."""
    b = n.builder
    wide = numeric(n, x)
    name = "argmax" if is_max else "argmin"
    found = b.emit(name, wide, axis=axis, keepdims=True)
    if not x.dtype.is_float:
        return found
    # The first NaN comes before every number.
    bad = n.cast(b.isnan(x), "uint8")
    first = b.argmax(bad, axis=axis, keepdims=True)
    return b.where(b.any(b.isnan(x), axes=[axis], keepdims=True), first, found)


@converts("argmax", "argmin")
def arg_extreme(n: Node) -> Value:
    x, b, is_max = n.tensor("self"), n.builder, n.op.startswith("argmax")
    if not x.ndim:
        return n.full(0, [], "int64")
    if n.get("dim") is not None:
        axis = n.axis("dim")
        place = place_of(n, x, axis, is_max)
        return place if keeps(n) else b.squeeze(place, axes=[axis])
    place = place_of(n, b.reshape(x, shape=[-1]), 0, is_max)
    return b.reshape(place, shape=n.shape)


# ---- moments ------------------------------------------------------------------------------------


@converts("var", "std", "var_mean", "std_mean")
def moments(n: Node) -> Any:
    name = n.op.partition(".")[0]
    x = n.tensor("self", n.dtype)
    correction = n.get("correction", 1 if n.get("unbiased", True) else 0)
    variance, mean = variance_of(n, x, n.axes("dim"), float(correction), keeps(n))
    spread = n.builder.sqrt(variance) if name.startswith("std") else variance
    return [spread, mean] if name.endswith("mean") else spread


def variance_of(
    n: Node, x: Value, axes: list[int], correction: float, keepdims: bool
) -> tuple[Value, Value]:
    """The variance and the mean over axes."""
    b = n.builder
    mean = b.mean(x, axes=axes, keepdims=True) if x.ndim else x
    apart = b.sub(x, mean)
    total = b.sum(b.mul(apart, apart), axes=axes, keepdims=True) if x.ndim else b.mul(apart, apart)
    count = n.number(product([x.shape[a] for a in axes]), x.dtype)
    left = b.maximum(b.sub(count, n.like(correction, x)), n.like(0, x))
    variance = b.div(total, left)
    if keepdims or not x.ndim:
        return variance, mean
    return b.squeeze(variance, axes=axes), b.squeeze(mean, axes=axes)


@converts("logsumexp")
def logsumexp(n: Node) -> Value:
    x = n.tensor("self", n.dtype)
    if not x.ndim:
        return x
    return n.builder.log_sum_exp(x, axes=n.axes("dim"), keepdims=keeps(n))


# ---- along an axis ------------------------------------------------------------------------------


@converts("_softmax", "softmax", "_log_softmax", "log_softmax", "_safe_softmax")
def softmax(n: Node) -> Value:
    x, b = n.tensor("self", n.dtype), n.builder
    op = "log_softmax" if "log" in n.op else "softmax"
    if not x.ndim:
        return b.reshape(b.emit(op, b.reshape(x, shape=[1]), axis=0), shape=[])
    result = b.emit(op, x, axis=n.axis("dim"))
    if not n.op.startswith("_safe"):
        return result
    least = n.like(float("-inf"), x)
    nothing = b.all(b.equal(x, least), axes=[n.axis("dim")], keepdims=True)
    return b.where(nothing, n.like(0, x), result)


@converts("cumsum", "cumprod")
def cumulative(n: Node) -> Value:
    x = n.tensor("self", n.dtype)
    if not x.ndim:
        return x
    return n.builder.emit(n.op.partition(".")[0], x, axis=n.axis("dim"))


@converts("cummax", "cummin")
def cumulative_extreme(n: Node) -> list[Value]:
    """By comparing each element with all before it: of equal extremes, the last counts."""
    x, b, is_max = n.tensor("self"), n.builder, n.op.startswith("cummax")
    if not x.ndim:
        return [x, n.full(0, [], "int64")]
    axis = n.axis("dim")
    place = _running_place(n, numeric(n, x), axis, is_max)
    return [b.gather_elements(x, place, axis=axis), place]


def _running_place(n: Node, x: Value, axis: int, is_max: bool) -> Value:
    b, extent = n.builder, x.shape[axis]
    order = [k for k in range(x.ndim) if k != axis]
    rows = b.transpose(x, axes=[*order, axis])
    here = b.ramp(n.constant(0, "int64"), n.constant(1, "int64"), size=extent)
    seen = b.less_equal(b.unsqueeze(here, axes=[0]), b.unsqueeze(here, axes=[1]))
    if x.dtype.is_float:
        worst: Any = float("-inf") if is_max else float("inf")
    else:
        worst = x.dtype.min_value if is_max else x.dtype.max_value
    shape = [*rows.shape[:-1], extent, extent]
    wide = b.expand(b.unsqueeze(rows, axes=[x.ndim - 1]), shape=shape)
    held = b.where(seen, wide, n.like(worst, x))
    best = b.emit("max" if is_max else "min", held, axes=[x.ndim], keepdims=True)
    same = b.equal(wide, best)
    if x.dtype.is_float:
        # NaN is above and below all.
        bad = b.logical_and(seen, b.isnan(wide))
        same = b.where(b.any(bad, axes=[x.ndim], keepdims=True), bad, same)
    found = b.where(b.logical_and(seen, same), here, n.constant(-1, "int64"))
    place = b.max(found, axes=[x.ndim])
    back = [*range(axis), x.ndim - 1, *range(axis, x.ndim - 1)]
    return b.transpose(place, axes=back)


@converts("logcumsumexp", "_logcumsumexp")
def logcumsumexp(n: Node) -> Value:
    x, b = n.tensor("self", n.dtype), n.builder
    if not x.ndim:
        return x
    axis = n.axis("dim")
    greatest = b.max(x, axes=[axis], keepdims=True)
    finite = b.where(b.isfinite(greatest), greatest, n.like(0, x))
    wide = n.cast(b.sub(x, finite), "float64")
    total = b.log(b.cumsum(b.exp(wide), axis=axis))
    return b.add(n.cast(total, x.dtype), finite)


# ---- order --------------------------------------------------------------------------------------


@converts("sort", "msort")
def sort(n: Node) -> Any:
    x, b = n.tensor("self"), n.builder
    if not x.ndim:
        return [x, n.full(0, [], "int64")]
    axis = n.axis("dim", default=-1)
    values, places = b.sort(numeric(n, x), axis=axis, descending=bool(n.get("descending", False)))
    return [n.cast(values, x.dtype), places]


@converts("argsort")
def argsort(n: Node) -> Value:
    return sort(n)[1]


@converts("topk")
def topk(n: Node) -> list[Value]:
    x, b = n.tensor("self"), n.builder
    if not x.ndim:
        return [x, n.full(0, [], "int64")]
    axis = n.axis("dim", default=-1)
    largest = bool(n.get("largest", True))
    values, places = b.top_k(numeric(n, x), k=n.dim("k"), axis=axis, largest=largest)
    return [n.cast(values, x.dtype), places]


@converts("kthvalue")
def kthvalue(n: Node) -> list[Value]:
    x = n.tensor("self")
    if not x.ndim:
        return [x, n.full(0, [], "int64")]
    return _at(n, x, n.axis("dim", default=-1), n.dim("k") - 1)


def _at(n: Node, x: Value, axis: int, place: Any) -> list[Value]:
    """The element at this position in sorted order, and where it was."""
    b = n.builder
    values, places = b.sort(numeric(n, x), axis=axis)
    at = n.number(place, "int64") if not isinstance(place, Value) else place
    found = [b.gather(v, at, axis=axis) for v in (values, places)]
    if keeps(n):
        found = [b.unsqueeze(v, axes=[axis]) for v in found]
    return [n.cast(found[0], x.dtype), found[1]]


@converts("median", "nanmedian")
def median(n: Node) -> Any:
    """The lower one of two in the middle; NaN counts as the greatest, or not at all."""
    x, b = n.tensor("self"), n.builder
    whole = "dim" not in n
    if not x.ndim:
        return x if whole else [x, n.full(0, [], "int64")]
    flat = b.reshape(x, shape=[-1]) if whole else x
    axis = 0 if whole else n.axis("dim")
    bad = b.isnan(flat) if x.dtype.is_float else n.full(False, flat.shape, "bool")
    good = b.sum(n.cast(b.logical_not(bad), "int64"), axes=[axis], keepdims=True)
    count = good if n.op.startswith("nan") else n.number(flat.shape[axis], "int64")
    half = b.floor_div(b.sub(count, n.constant(1, "int64")), n.constant(2, "int64"))
    half = b.maximum(n.expanded(half, good.shape), n.constant(0, "int64"))
    values, places = b.sort(numeric(n, flat), axis=axis)
    value, place = (b.gather_elements(v, half, axis=axis) for v in (values, places))
    if x.dtype.is_float and not n.op.startswith("nan"):
        some = b.any(bad, axes=[axis], keepdims=True)
        value = b.where(some, n.like(float("nan"), x), value)
        place = b.where(some, b.argmax(n.cast(bad, "uint8"), axis=axis, keepdims=True), place)
    if not keeps(n):
        value, place = (b.squeeze(v, axes=[axis]) for v in (value, place))
    value = n.cast(value, x.dtype)
    return value if whole else [value, place]


@converts("searchsorted", "bucketize")
def searchsorted(n: Node) -> Value:
    """How many elements of each sorted row are less than a value, by counting."""
    b = n.builder
    if n.op.startswith("bucketize"):
        rows, x = n["boundaries"], n["self"]
        names = ("boundaries", "self")
    else:
        rows, x = n["sorted_sequence"], n["self"]
        names = ("sorted_sequence", "self")
    if n.get("sorter") is not None:
        rows = b.gather_elements(rows, n["sorter"], axis=rows.ndim - 1)
    dtype = n.promoted(*names)
    rows, x = numeric(n, n.cast(rows, dtype)), numeric(n, n.number(x, dtype))
    right = bool(n.get("right", False)) or n.get("side") == "right"
    if rows.ndim == 1:
        grid = b.unsqueeze(x, axes=[x.ndim])
    else:
        grid, rows = b.unsqueeze(x, axes=[x.ndim]), b.unsqueeze(rows, axes=[rows.ndim - 1])
    # NaN counts as the greatest.
    before = b.emit("less_equal" if right else "less", rows, grid)
    if x.dtype.is_float:
        before = b.logical_or(before, b.logical_and(b.isnan(grid), b.logical_not(b.isnan(rows))))
    return n.cast(b.sum(n.cast(before, "int64"), axes=[before.ndim - 1]), n.dtype)
