"""Tensors that are not computed from elements: constants, ramps, unit matrices."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from tilewright.arith import simplify
from tilewright.graph.ir import KNOWN_LIMIT, Array, Value
from tilewright.graph.ir.attributes import Dim, Dims, Ints
from tilewright.graph.ir.op import op
from tilewright.graph.ir.types import TensorType, Type, fresh_dim, known_dim
from tilewright.graph.ops.elementwise.elementwise import require_kind, require_same_dtype
from tilewright.graph.sizes.agreement import ask, is_asked, require_same_shape
from tilewright.graph.sizes.axes import clamped, tidy
from tilewright.ir import Cast, Const, DType, Expr, all_of, as_expr, const, maximum
from tilewright.support.errors import UserError
from tilewright.tensor import te

# ---- full ---------------------------------------------------------------------------------------


@op
def full(value: Value, *, shape: Dims) -> Type:
    """A tensor of this shape, all of whose elements are `value`."""
    _require_scalar(value)
    return TensorType(value.dtype, shape)


@full.reference
def full_reference(value: Array, *, shape: Ints) -> Array:
    return np.full(shape, value.reshape(()), value.dtype)


@full.compute
def full_compute(value: te.Tensor, *, shape: Dims, out: TensorType) -> te.Tensor:
    del shape
    return te.compute(out.shape, lambda *_: value[(0,) * value.ndim], name="full")


@full.symbolic
def full_symbolic(value: Value, *, shape: Dims) -> Array | None:
    size = TensorType("bool", shape)
    if value.known is None or not size.is_static or (size.size or 0) > KNOWN_LIMIT:
        return None
    return np.full(size.static_shape, value.known.ravel()[0], object)


def _require_scalar(*values: Value) -> None:
    for value in values:
        if value.tensor.size != 1:
            raise UserError(f"{value} must be one element")


# ---- ramp and range -----------------------------------------------------------------------------


#: More rows or columns than any tensor has.
_BEYOND: Final = 1 << 48
#: Largest magnitude up to which these types hold all integers.
_COUNTED: Final = {"float32": 1 << 24, "float64": 1 << 53}
#: More elements than any range has: differences below this do not wrap around.
_TOO_FAR: Final = 1 << 62


@op
def ramp(start: Value, step: Value, *, size: Dim) -> Type:
    """start, start + step, …: `size` elements."""
    require_kind("number", start)
    require_same_dtype(start, step)
    _require_scalar(start, step)
    return TensorType(start.dtype, [size])


@ramp.reference
def ramp_reference(start: Array, step: Array, *, size: int) -> Array:
    with np.errstate(all="ignore"):
        steps = np.arange(size).astype(start.dtype) * step.reshape(())
        return (start.reshape(()) + steps).astype(start.dtype)


@ramp.compute
def ramp_compute(start: te.Tensor, step: te.Tensor, *, size: Dim, out: TensorType) -> te.Tensor:
    del size

    def element(i: Expr) -> Expr:
        first, by = start[(0,) * start.ndim], step[(0,) * step.ndim]
        return first + te.cast(i, start.dtype) * by

    return te.compute(out.shape, element, name="ramp")


@ramp.symbolic
def ramp_symbolic(start: Value, step: Value, *, size: Dim) -> Array | None:
    count = known_dim(size)
    if start.known is None or step.known is None or count is None or count > KNOWN_LIMIT:
        return None
    if not start.dtype.is_integer:
        return None
    first, by = start.known.ravel()[0], step.known.ravel()[0]
    found = np.empty(count, object)
    for n in range(count):
        found[n] = simplify(first + by * n)
    return found


@op
def range_(start: Value, limit: Value, delta: Value) -> Type:
    """start, start + delta, … as long as it is before `limit`."""
    require_kind("number", start)
    require_same_dtype(start, limit, delta)
    _require_scalar(start, limit, delta)
    count = _known_count(start, limit, delta)
    return TensorType(start.dtype, [fresh_dim("count") if count is None else count])


@range_.reference
def range_reference(start: Array, limit: Array, delta: Array) -> Array:
    first, last, by = (v.reshape(()).astype(np.float64) for v in (start, limit, delta))
    if start.dtype.kind in "iu":
        first, last, by = (int(v.reshape(())) for v in (start, limit, delta))
        count = -((first - last) // by)
    else:
        count = int(np.ceil((last - first) / by))
    return ramp_reference(start, delta, size=max(0, count))


@range_.decompose
def range_decompose(b: Any, start: Value, limit: Value, delta: Value) -> Value:
    count = _known_count(start, limit, delta)
    if count is None:
        (count,) = b.read(_count(b, start, limit, delta), "count", natural=True)
    return b.ramp(start, delta, size=count)


@range_.symbolic
def range_symbolic(start: Value, limit: Value, delta: Value) -> Array | None:
    count = _known_count(start, limit, delta)
    return None if count is None else ramp_symbolic(start, delta, size=count)


def _known_count(start: Value, limit: Value, delta: Value) -> Expr | None:
    first, last, by = (_whole(v) for v in (start, limit, delta))
    if first is None or last is None or by is None:
        return _constant_count(start, limit, delta)
    if known_dim(by) == 0:
        if start.dtype.is_float:
            return _constant_count(start, limit, delta)
        raise UserError("a range cannot go in steps of 0")
    return tidy(maximum(-((first - last) // by), 0))


def _whole(value: Value) -> Expr | None:
    """The element of a scalar, where it is known and an integer.

    One that was converted to a floating-point number is required to be within the range where
    that type holds all integers.
    """
    if value.known is None:
        return None
    element = as_expr(value.known.ravel()[0])
    if value.dtype.is_integer:
        return element
    most = _COUNTED.get(value.dtype.name)
    if most is None:
        return None
    if isinstance(element, Const):
        number = float(element.value)
        return const(int(number)) if number.is_integer() and abs(number) <= most else None
    if not isinstance(element, Cast) or not element.a.dtype.is_integer:
        return None
    if is_asked():
        near = all_of(element.a <= most, element.a >= -most)
        ask(near, f"{value.dtype.name} does not count further than to {most}")
    return element.a


def _constant_count(start: Value, limit: Value, delta: Value) -> Expr | None:
    arrays = [v.constant for v in (start, limit, delta)]
    if any(a is None for a in arrays):
        return None
    return const(len(range_reference(*(a for a in arrays if a is not None))))


def _count(b: Any, start: Value, limit: Value, delta: Value) -> Value:
    """The number of elements, computed at run time."""
    if start.dtype.is_integer:
        first, last, by = (b.cast(v, dtype="int64") for v in (start, limit, delta))
        exact = b.neg(b.floor_div(b.sub(first, last), by))
        # Where the difference of the ends wraps around, there are more than any memory holds.
        way = b.sub(*(b.cast(v, dtype="float64") for v in (limit, start)))
        forward = b.mul(way, b.cast(by, dtype="float64")) > 0.0
        many = b.where(forward, *(b.constant(n, "int64") for n in (_TOO_FAR, 0)))
        count = b.where(b.abs(way) < float(_TOO_FAR), exact, many)
    else:
        first, last, by = (b.cast(v, dtype="float64") for v in (start, limit, delta))
        count = b.cast(b.ceil(b.div(b.sub(last, first), by)), dtype="int64")
    return b.maximum(count, b.constant(0, "int64"))


# ---- matrices -----------------------------------------------------------------------------------


@op
def eye(*, rows: Dim, columns: Dim, k: int = 0, dtype: DType) -> Type:
    """Ones on the diagonal (`k` above the main one), zeros elsewhere."""
    return TensorType(dtype, [rows, columns])


@eye.reference
def eye_reference(*, rows: int, columns: int, k: int, dtype: DType) -> Array:
    return np.eye(rows, columns, k).astype(dtype.numpy)


@eye.compute
def eye_compute(*, rows: Dim, columns: Dim, k: int, dtype: DType, out: TensorType) -> te.Tensor:
    del rows, columns

    def element(i: Expr, j: Expr) -> Expr:
        return te.cast(j - i == k, dtype)

    return te.compute(out.shape, element, name="eye")


@op
def trilu(x: Value, *, k: Dim = 0, upper: bool = True) -> Type:
    """The upper (or lower) triangles of matrices, from diagonal `k` on; zeros elsewhere."""
    if x.ndim < 2:
        raise UserError(f"{x} has no matrices")
    return x.type


@trilu.reference
def trilu_reference(x: Array, *, k: int, upper: bool) -> Array:
    rows, columns = x.shape[-2:]
    kept = ~np.tri(rows, columns, k - 1, bool) if upper else np.tri(rows, columns, k, bool)
    return np.where(kept, x, np.zeros((), x.dtype))


@trilu.compute
def trilu_compute(x: te.Tensor, *, k: Dim, upper: bool) -> te.Tensor:
    # Beyond all diagonals, but small enough to compute with.
    k = tidy(clamped(k, -_BEYOND, _BEYOND))

    def element(*i: Expr) -> Expr:
        above = i[-1] - i[-2]
        kept = above >= k if upper else above <= k
        return te.if_then_else(kept, x[i], te.cast(te.const(0), x.dtype))

    return te.compute(x.shape, element, name="trilu")


@op
def one_hot(indices: Value, values: Value, *, depth: Dim, axis: int = -1) -> Type:
    """values[1] where the index is the position along the new `axis`, values[0] elsewhere.

    Indices may be any numbers; negative ones count from the end, others that are out of range are
    nowhere.
    """
    require_kind("number", indices)
    require_same_shape(values.shape, [2], "values and (off, on)")
    at = _new_axis(axis, indices.ndim)
    return TensorType(values.dtype, [*indices.shape[:at], depth, *indices.shape[at:]])


@one_hot.reference
def one_hot_reference(indices: Array, values: Array, *, depth: int, axis: int) -> Array:
    at = _new_axis(axis, indices.ndim)
    whole = np.expand_dims(indices.astype(np.int64), at)
    places = np.arange(depth).reshape([-1] + [1] * (indices.ndim - at))
    hot = (whole == places) | (whole == places - depth)
    return np.where(hot, values[1:2], values[0:1]).astype(values.dtype)


@one_hot.compute
def one_hot_compute(
    indices: te.Tensor, values: te.Tensor, *, depth: Dim, axis: int, out: TensorType
) -> te.Tensor:
    del depth
    at = _new_axis(axis, indices.ndim)

    def element(*i: Expr) -> Expr:
        index = te.cast(indices[(*i[:at], *i[at + 1 :])], "int64")
        hot = te.any_of(index == i[at], index + out.shape[at] == i[at])
        return te.select(hot, values[1], values[0])

    return te.compute(out.shape, element, name="one_hot")


def _new_axis(axis: int, rank: int) -> int:
    if not -rank - 1 <= axis <= rank:
        raise UserError(f"there is no place {axis} for a new axis among {rank}")
    return axis % (rank + 1)
