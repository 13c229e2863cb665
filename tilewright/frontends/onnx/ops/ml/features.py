"""Features of ai.onnx.ml: encodings, scaling, selection."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from tilewright.frontends.onnx.node import Node
from tilewright.frontends.onnx.table import converts
from tilewright.graph import STRING, Array, Value, dtype_of
from tilewright.support.errors import UserError

_ML: Final = "ai.onnx.ml"


def _strings(texts: list[str]) -> Array:
    return np.array([*texts, None], object)[:-1]


# ---- tables -------------------------------------------------------------------------------------


@converts("LabelEncoder", domain=_ML, since=2)
def label_encoder(n: Node) -> Value:
    keys, _ = _list(n, "keys")
    values, kind = _list(n, "values")
    if len(keys) != len(values) or not len(keys):
        raise UserError(f"{len(keys)} keys have {len(values)} values")
    return looked_up(n, keys, values, _default(n, values, kind))


def _list(n: Node, name: str) -> tuple[Array, str]:
    """Keys or values from the attribute of the given type."""
    if n.has(f"{name}_tensor"):
        return n.tensor(f"{name}_tensor")[0].ravel(), "tensor"
    if n.has(f"{name}_strings"):
        return _strings(n.texts(f"{name}_strings")), "string"
    if n.has(f"{name}_int64s"):
        return np.array(n.integers(f"{name}_int64s"), np.int64), "int64"
    return np.array(n.reals(f"{name}_floats"), np.float32), "float"


def _default(n: Node, values: Array, kind: str) -> Any:
    if kind == "tensor" and n.has("default_tensor"):
        return n.tensor("default_tensor")[0].ravel()[0]
    if values.dtype == object:
        return n.text("default_string", "_Unused")
    if values.dtype.kind in "iu":
        return n.integer("default_int64", -1)
    return n.real("default_float", -0.0)


def looked_up(n: Node, keys: Array, values: Array, default: Any) -> Value:
    """For each element the value of its key; the last one of equal keys counts."""
    x, b = n[0], n.builder
    matches = _matches(n, x, keys)
    place = b.argmax(b.cast(matches, dtype="int32"), axis=-1, last=True)
    dtype = dtype_of(values.dtype)
    found = b.gather(n.constant(values, dtype), place, axis=0)
    fill = np.empty((), dtype.numpy)
    fill[...] = default
    return b.where(b.any(matches, axes=[-1]), found, n.constant(fill, dtype))


def _matches(n: Node, x: Value, keys: Array) -> Value:
    """Whether each element is each of the keys, along a new axis."""
    b = n.builder
    wide = b.unsqueeze(x, axes=[x.ndim])
    matches = b.equal(wide, n.constant(keys, x.dtype))
    if keys.dtype.kind == "f" and np.isnan(keys).any():
        both = b.logical_and(b.isnan(wide), n.constant(np.isnan(keys)))
        matches = b.logical_or(matches, both)
    return matches


@converts("LabelEncoder", domain=_ML, until=2)
def label_encoder_of_classes(n: Node) -> Value:
    names = _strings(n.texts("classes_strings"))
    return _between(n, names, np.arange(len(names)))


@converts("CategoryMapper", domain=_ML)
def category_mapper(n: Node) -> Value:
    names, numbers = (
        _strings(n.texts("cats_strings")),
        np.array(n.integers("cats_int64s"), np.int64),
    )
    return _between(n, names, numbers)


def _between(n: Node, names: Array, numbers: Array) -> Value:
    """Strings as numbers, or numbers as strings."""
    if len(names) != len(numbers) or not len(names):
        raise UserError(f"{len(names)} strings have {len(numbers)} numbers")
    if n[0].dtype is STRING:
        return looked_up(n, names, numbers, n.integer("default_int64", -1))
    return looked_up(n, numbers, names, n.text("default_string", "_Unused"))


@converts("OneHotEncoder", domain=_ML)
def one_hot_encoder(n: Node) -> Value:
    x, b = n[0], n.builder
    if n.has("cats_strings") and x.dtype is STRING:
        keys = _strings(n.texts("cats_strings"))
    else:
        keys = np.array(n.integers("cats_int64s"), np.int64)
        x = b.cast(x, dtype="int64")
    if not n.flag("zeros", True):
        raise UserError("a one-hot encoder that fails on unknown categories", remedy="set zeros=1")
    return b.cast(_matches(n, x, keys), dtype="float32")


# ---- numbers ------------------------------------------------------------------------------------


@converts("Binarizer", domain=_ML)
def binarizer(n: Node) -> Value:
    limit = n.scalar(n.real("threshold", 0.0), n[0])
    return n.builder.cast(n.builder.greater(n[0], limit), dtype=n[0].dtype)


@converts("Scaler", domain=_ML)
def scaler(n: Node) -> Value:
    x: Any = n.builder.cast(n[0], dtype="float32")
    offset = n.constant(n.reals("offset", [0.0]), "float32")
    return (x - offset) * n.constant(n.reals("scale", [1.0]), "float32")


@converts("Normalizer", domain=_ML)
def normalizer(n: Node) -> Value:
    b, norm = n.builder, n.text("norm", "MAX")
    x = b.cast(n[0], dtype="float32")
    ops = {"MAX": "max", "L1": "l1", "L2": "l2"}
    if norm not in ops:
        raise UserError(f"norm is {norm!r}", remedy="use MAX, L1 or L2")
    length = b.emit(ops[norm], x, axes=[-1], keepdims=True)
    is_zero = b.equal(length, n.scalar(0.0, x))
    return b.div(x, b.where(is_zero, n.scalar(1.0, x), length))


@converts("Imputer", domain=_ML)
def imputer(n: Node) -> Value:
    x, b = n[0], n.builder
    if x.dtype.is_float:
        values, old = n.reals("imputed_value_floats"), n.real("replaced_value_float", 0.0)
    else:
        values, old = n.integers("imputed_value_int64s"), n.integer("replaced_value_int64", 0)
    missing = b.isnan(x) if old != old else b.equal(x, n.scalar(old, x))
    return b.where(missing, n.constant(values, x.dtype), x)


# ---- selection ----------------------------------------------------------------------------------


@converts("ArrayFeatureExtractor", domain=_ML)
def array_feature_extractor(n: Node) -> Value:
    x, b = n[0], n.builder
    found = b.gather(x, b.reshape(n[1], shape=[-1]), axis=-1)
    return b.unsqueeze(found, axes=[0]) if x.ndim == 1 else found


@converts("FeatureVectorizer", domain=_ML)
def feature_vectorizer(n: Node) -> Value:
    b = n.builder
    sizes = n.integers("inputdimensions", None)
    parts: list[Value] = []
    for k, x in enumerate(n.all):
        rows = b.unsqueeze(x, axes=[0]) if x.ndim == 1 else x
        rows = b.cast(rows, dtype="float32")
        if sizes is not None and k < len(sizes):
            rows = b.pad(rows, before=[0, 0], after=[0, sizes[k] - rows.shape[1]])
        parts.append(rows)
    return b.concat(*parts, axis=1)
