"""Operations between layers: those of `keras.ops`."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any, Final

import numpy as np

from tilewright.frontends.keras.activations import FUNCTIONS
from tilewright.frontends.keras.config import as_dict, as_list
from tilewright.frontends.keras.layer import Layer, tensors
from tilewright.frontends.keras.layers.core import bounded_relu
from tilewright.frontends.keras.table import TABLE, converts
from tilewright.graph import Value, dtype_of
from tilewright.support.errors import UserError


def _given(n: Layer, index: int, name: str, default: Any = None) -> Any:
    """An argument of the call, or one from the operation's configuration."""
    found = n.argument(index, name)
    if found is None:
        found = n.config.raw(name)
    return default if found is None else found


def _number(found: Any) -> Any:
    """Constants are written as numbers, or as objects that contain them."""
    inner = as_dict((as_dict(found) or {}).get("config"))
    return found if inner is None else inner.get("value")


def _value(n: Layer, found: Any, like: Value | None) -> Value:
    """A tensor, or a number of the element type of another."""
    found = _number(found)
    if isinstance(found, Value):
        return found
    if found is None:
        raise UserError("an operand is missing")
    array = np.asarray(found)
    if array.dtype.kind not in "fiub":
        raise UserError(f"an operand is {str(found)[:80]}")
    is_float = like is not None and like.dtype.is_float
    if like is not None and (array.dtype.kind in "iub" or is_float):
        return n.constant(array, like.dtype)
    return n.constant(array.astype(np.float32) if array.dtype.kind == "f" else array)


def _pair(n: Layer) -> tuple[Value, Value]:
    """Two operands of one type; floats win over integers."""
    given = [_given(n, 0, "x1"), _given(n, 1, "x2")]
    if n.spec.domain != "ops":
        given = [_given(n, 0, "x"), _given(n, 1, "y")]
    like = next((g for g in given if isinstance(g, Value)), None)
    a, b = (_value(n, g, like) for g in given)
    if a.dtype is b.dtype:
        return a, b
    wanted = a.dtype if a.dtype.is_float or not b.dtype.is_float else b.dtype
    a, b = (v if v.dtype is wanted else n.builder.cast(v, dtype=wanted) for v in (a, b))
    return a, b


_BINARY: Final = {
    "Add": "add",
    "Divide": "div",
    "Equal": "equal",
    "FloorDivide": "floor_div",
    "Greater": "greater",
    "GreaterEqual": "greater_equal",
    "Less": "less",
    "LessEqual": "less_equal",
    "LogicalAnd": "logical_and",
    "LogicalOr": "logical_or",
    "LogicalXor": "logical_xor",
    "Matmul": "matmul",
    "Maximum": "maximum",
    "Minimum": "minimum",
    "Mod": "mod",
    "Multiply": "mul",
    "NotEqual": "not_equal",
    "Power": "pow",
    "Subtract": "sub",
    "TrueDivide": "div",
}
_UNARY: Final = {
    "Abs": "abs",
    "Absolute": "abs",
    "Arccos": "acos",
    "Arcsin": "asin",
    "Arctan": "atan",
    "Ceil": "ceil",
    "Cos": "cos",
    "Cosh": "cosh",
    "Erf": "erf",
    "Exp": "exp",
    "Expm1": "expm1",
    "Floor": "floor",
    "Identity": "identity",
    "Isfinite": "isfinite",
    "Isinf": "isinf",
    "Isnan": "isnan",
    "Log": "log",
    "Log10": "log10",
    "Log1p": "log1p",
    "Log2": "log2",
    "LogicalNot": "logical_not",
    "Negative": "neg",
    "Reciprocal": "reciprocal",
    "Rsqrt": "rsqrt",
    "Sign": "sign",
    "Sin": "sin",
    "Sinh": "sinh",
    "Sqrt": "sqrt",
    "Tan": "tan",
    "Tanh": "tanh",
}
_REDUCTIONS: Final = {
    "All": "all",
    "Any": "any",
    "Amax": "max",
    "Amin": "min",
    "Logsumexp": "log_sum_exp",
    "Max": "max",
    "Mean": "mean",
    "Min": "min",
    "Prod": "prod",
    "Sum": "sum",
}


@converts(*_BINARY, domain="ops")
def binary(n: Layer) -> Value:
    return n.builder.emit(_BINARY[n.kind], *_pair(n))


@converts(*_UNARY, domain="ops")
def unary(n: Layer) -> Value:
    return n.builder.emit(_UNARY[n.kind], n[0])


@converts(*_REDUCTIONS, domain="ops")
def reduction(n: Layer) -> Value:
    axes = _axes(_given(n, 1, "axis"))
    keeps = bool(_given(n, 2, "keepdims", False))
    x = n.builder.cast(n[0], dtype="bool") if n.kind in ("Any", "All") else n[0]
    return n.builder.emit(_REDUCTIONS[n.kind], x, axes=axes, keepdims=keeps)


def _axes(found: Any) -> list[int] | None:
    if found is None:
        return None
    return [int(found)] if isinstance(found, int) else [int(a) for a in found]


def _declare_activations() -> None:
    """Activations are operations as well."""
    for name, function in FUNCTIONS.items():
        kind = "".join(part.capitalize() for part in name.split("_"))

        def convert(n: Layer, function: Callable[[Layer, Value], Value] = function) -> Value:
            return function(n, n[0])

        if kind not in ("Relu", "Softmax", "LogSoftmax", "Tanh", "Gelu", "LeakyRelu"):
            TABLE.add(kind, convert, domain="ops")


_declare_activations()


@converts("Relu", domain="ops")
def relu(n: Layer) -> Value:
    slope, threshold = (float(n.config.raw(k, 0.0)) for k in ("negative_slope", "threshold"))
    return bounded_relu(n, n[0], slope, threshold, n.config.real("max_value", None))


@converts("LeakyRelu", domain="ops")
def leaky_relu(n: Layer) -> Value:
    return n.builder.leaky_relu(n[0], alpha=float(_given(n, 1, "negative_slope", 0.2)))


@converts("Gelu", domain="ops")
def gelu(n: Layer) -> Value:
    approximate = bool(_given(n, 1, "approximate", True))
    return n.builder.gelu(n[0], approximate="tanh" if approximate else "none")


@converts("Softmax", "LogSoftmax", domain="ops")
def softmax(n: Layer) -> Value:
    op = "softmax" if n.kind == "Softmax" else "log_softmax"
    return n.builder.emit(op, n[0], axis=int(_given(n, 1, "axis", -1)))


@converts("Square", domain="ops")
def square(n: Layer) -> Value:
    return n[0] * n[0]


@converts("Clip", domain="ops")
def clip(n: Layer) -> Value:
    low, high = (_value(n, _given(n, k, m), n[0]) for k, m in ((1, "x_min"), (2, "x_max")))
    return n.builder.clip(n[0], low, high)


@converts("Where", domain="ops")
def where(n: Layer) -> Value:
    given = [_given(n, 1, "x1"), _given(n, 2, "x2")]
    like = next((g for g in given if isinstance(g, Value)), None)
    return n.builder.where(n[0], *(_value(n, g, like) for g in given))


@converts("Cast", domain="ops")
def cast(n: Layer) -> Value:
    return n.builder.cast(n[0], dtype=dtype_of(str(_given(n, 1, "dtype"))))


# ---- shapes -------------------------------------------------------------------------------------


@converts("Reshape", domain="ops")
def reshape(n: Layer) -> Value:
    shape = list(_given(n, 1, "newshape"))
    if shape and shape[0] is None:
        shape[0] = n[0].shape[0]
    return n.builder.reshape(n[0], shape=[-1 if d is None else d for d in shape])


@converts("Transpose", domain="ops")
def transpose(n: Layer) -> Value:
    return n.builder.transpose(n[0], axes=_axes(_given(n, 1, "axes")))


@converts("Swapaxes", domain="ops")
def swapaxes(n: Layer) -> Value:
    axes = list(range(n[0].ndim))
    a, b = (int(_given(n, k, m)) for k, m in ((1, "axis1"), (2, "axis2")))
    axes[a], axes[b] = axes[b], axes[a]
    return n.builder.transpose(n[0], axes=axes)


@converts("ExpandDims", domain="ops")
def expand_dims(n: Layer) -> Value:
    return n.builder.unsqueeze(n[0], axes=_axes(_given(n, 1, "axis")))


@converts("Squeeze", domain="ops")
def squeeze(n: Layer) -> Value:
    return n.builder.squeeze(n[0], axes=_axes(_given(n, 1, "axis")))


@converts("Concatenate", domain="ops")
def concatenate(n: Layer) -> Value:
    return n.builder.concat(*n.all, axis=int(_given(n, 1, "axis", 0)))


@converts("Stack", domain="ops")
def stack(n: Layer) -> Value:
    axis, b = int(_given(n, 1, "axis", 0)), n.builder
    return b.concat(*(b.unsqueeze(v, axes=[axis]) for v in n.all), axis=axis)


@converts("Split", domain="ops")
def split(n: Layer) -> list[Value]:
    axis = int(_given(n, 2, "axis", 0))
    parts = _given(n, 1, "indices_or_sections")
    extent = n[0].shape[axis]
    if isinstance(parts, int):
        sizes = [extent // parts] * parts
    else:
        bounds = [0, *parts, extent]
        sizes = [b - a for a, b in pairwise(bounds)]
    return list(n.builder.emit_all("split", [n[0]], {"sizes": sizes, "axis": axis}))


@converts("Tile", domain="ops")
def tile(n: Layer) -> Value:
    repeats = [int(r) for r in np.atleast_1d(_given(n, 1, "repeats"))]
    x = n[0]
    if len(repeats) > x.ndim:
        x = n.builder.unsqueeze(x, axes=list(range(len(repeats) - x.ndim)))
    return n.builder.tile(x, repeats=[1] * (x.ndim - len(repeats)) + repeats)


@converts("Repeat", domain="ops")
def repeat(n: Layer) -> Value:
    axis = _given(n, 2, "axis")
    x = n[0] if axis is not None else n.builder.reshape(n[0], shape=[-1])
    return n.builder.repeat_elements(x, repeats=int(_given(n, 1, "repeats")), axis=int(axis or 0))


@converts("BroadcastTo", domain="ops")
def broadcast_to(n: Layer) -> Value:
    shape = list(_given(n, 1, "shape"))
    dims = [n[0].shape[0] if d is None and k == 0 else d for k, d in enumerate(shape)]
    return n.builder.expand(n[0], shape=dims)


@converts("Flip", domain="ops")
def flip(n: Layer) -> Value:
    return n.builder.flip(n[0], axes=_axes(_given(n, 1, "axis")))


@converts("Einsum", domain="ops")
def einsum(n: Layer) -> Value:
    equation = str(n.config.raw("subscripts") or n.argument(0, "subscripts"))
    operands = list(tensors([n.args, n.kwargs]))
    return n.builder.einsum(*operands, equation=equation)


@converts("Take", domain="ops")
def take(n: Layer) -> Value:
    indices = _value(n, _given(n, 1, "indices"), None)
    return n.builder.gather(n[0], indices, axis=int(_given(n, 2, "axis", 0)))


@converts("Argmax", "Argmin", domain="ops")
def argmax(n: Layer) -> Value:
    axis, keeps = _given(n, 1, "axis"), bool(_given(n, 2, "keepdims", False))
    x = n[0] if axis is not None else n.builder.reshape(n[0], shape=[-1])
    found = n.builder.emit(n.kind.lower(), x, axis=int(axis or 0), keepdims=keeps)
    return n.builder.cast(found, dtype="int32")


@converts("GetItem", domain="ops")
def get_item(n: Layer) -> Value:
    return n.builder.index(n[0], index_of(_given(n, 1, "key")))


def index_of(key: Any) -> Any:
    """An index in its file format: numbers, slices, `...` and new axes."""
    if (items := as_list(key)) is not None:
        return tuple(index_of(k) for k in items)
    if (entry := as_dict(key)) is not None:
        kind = entry.get("class_name")
        inner = as_dict(entry.get("config")) or entry
        if kind == "__ellipsis__":
            return Ellipsis
        if kind == "__tuple__" or "items" in inner:
            return tuple(index_of(k) for k in as_list(inner.get("items")) or ())
        if kind == "__slice__" or "start" in inner:
            return slice(inner.get("start"), inner.get("stop"), inner.get("step"))
    if key is None or isinstance(key, int):
        return key
    raise UserError(f"an index is {str(key)[:80]}")
