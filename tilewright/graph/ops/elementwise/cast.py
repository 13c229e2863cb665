"""Conversion between element types."""

from __future__ import annotations

from functools import partial

import numpy as np

from tilewright.graph.ir import Array, Value
from tilewright.graph.ir.op import op
from tilewright.graph.ir.types import STRING, TensorType, Type, dtype_of
from tilewright.graph.layouts.images import elementwise_layouts
from tilewright.graph.ops.elementwise.elementwise import map_known, mapped
from tilewright.ir import Cast, Const, DType, Expr, Var, evaluate
from tilewright.tensor import te

_INT64 = DType.of("int64")


@op
def cast(x: Value, *, dtype: DType, saturate: bool = True) -> Type:
    """Every element converted; `saturate` keeps what is too large for a float8 at its greatest."""
    return TensorType(dtype, x.shape)


@cast.reference
def cast_reference(x: Array, *, dtype: DType, saturate: bool) -> Array:
    source = dtype_of(x.dtype)
    if STRING in (source, dtype):
        return _cast_strings(x, source, dtype)
    element = Var("x", source)
    return evaluate(converted(element, dtype, saturate), {element: x}).reshape(x.shape)


@cast.compute
def cast_compute(x: te.Tensor, *, dtype: DType, saturate: bool) -> te.Tensor:
    return mapped(partial(converted, dtype=dtype, saturate=saturate), x, name="cast")


cast.layouts(elementwise_layouts)


@cast.symbolic
def cast_symbolic(x: Value, *, dtype: DType, saturate: bool) -> Array | None:
    if dtype is STRING or x.dtype is STRING:
        return None
    return map_known(partial(_known, dtype=dtype, saturate=saturate), x)


def _known(e: Expr, dtype: DType, saturate: bool) -> Expr:
    """An element in shape arithmetic, whose integers are index expressions whatever their type."""
    if not dtype.is_integer:
        return converted(e, dtype, saturate)
    # Floats stay within the type; integers are wrapped around by whom the elements belong to.
    return te.cast(te.cast(e, dtype) if isinstance(e, Const) and e.dtype.is_float else e, _INT64)


def converted(e: Expr, dtype: DType, saturate: bool) -> Expr:
    """One element converted."""
    if not _saturates(dtype, saturate):
        return te.cast(e, dtype)
    wide = e if e.dtype.is_float and not e.dtype.is_storage_only else te.cast(e, "float32")
    low, high = dtype.min_value, dtype.max_value
    if wide.dtype.name == "float16" and high > wide.dtype.max_value:
        wide = te.cast(wide, "float32")
    return Cast(dtype, te.minimum(te.maximum(wide, low), high))


def _saturates(dtype: DType, saturate: bool) -> bool:
    return saturate and dtype.is_float and dtype.bits == 8 and dtype.is_signed


def _cast_strings(x: Array, source: DType, dtype: DType) -> Array:
    if source is STRING and dtype is STRING:
        return x.copy()
    if source is STRING:
        return np.array([float(s) for s in x.ravel()]).reshape(x.shape).astype(dtype.numpy)
    texts = [_text(v, source) for v in x.ravel()]
    return np.array([*texts, None], object)[:-1].reshape(x.shape)


def _text(value: object, source: DType) -> str:
    if source.is_float:
        return np.format_float_positional(
            np.float64(str(value)), trim="0", unique=True, precision=None
        )
    return str(value)
