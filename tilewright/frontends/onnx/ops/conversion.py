"""Constants, casts, and identities."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from tilewright.frontends.onnx.node import Node
from tilewright.frontends.onnx.ops.random import random_key
from tilewright.frontends.onnx.table import converts
from tilewright.graph import STRING, Value, dtype_of
from tilewright.ir import DType
from tilewright.support.errors import UserError


@converts("Identity")
def identity(n: Node) -> Value | None:
    return n.get(0)


@converts("Constant")
def constant(n: Node) -> Value:
    given = [a for a in n.attributes if a in _CONSTANTS]
    if len(given) != 1:
        raise UserError(f"a constant has the attributes {list(n.attributes)}")
    array, dtype = _CONSTANTS[given[0]](n, given[0])
    return n.builder.constant(array, dtype, n.proto.output[0])


def _strings(values: Any) -> Any:
    array = np.empty(np.shape(values), object)
    array[...] = values
    return array


_Read = Callable[[Node, str], tuple[Any, object]]
_CONSTANTS: dict[str, _Read] = {
    "value": lambda n, name: n.tensor(name),
    "sparse_value": lambda n, name: n.sparse_tensor(name),
    "value_int": lambda n, name: (n.integer(name), "int64"),
    "value_ints": lambda n, name: (n.integers(name), "int64"),
    "value_float": lambda n, name: (n.real(name), "float32"),
    "value_floats": lambda n, name: (n.reals(name), "float32"),
    "value_string": lambda n, name: (_strings(n.text(name)), STRING),
    "value_strings": lambda n, name: (_strings(n.texts(name)), STRING),
}


@converts("ConstantOfShape")
def constant_of_shape(n: Node) -> Value:
    array, dtype = n.tensor("value") if n.has("value") else (np.zeros(1, np.float32), "float32")
    if array.size != 1:
        raise UserError(f"the value has {array.size} elements", reason="it must have one")
    return n.builder.full(n.constant(array.reshape(()), dtype), shape=n.dims(0))


@converts("Cast", since=6)
def cast(n: Node) -> Value:
    return _cast(n, n.dtype("to"))


@converts("Cast", until=6)
def cast_by_name(n: Node) -> Value:
    return _cast(n, n.text("to").lower())


@converts("CastLike")
def cast_like(n: Node) -> Value:
    return _cast(n, n[1].dtype)


def _cast(n: Node, dtype: object) -> Value:
    x, to = n[0], dtype_of(dtype)
    if to is x.dtype:
        return x
    if to.name == "float8_e8m0fnu" and x.dtype is not STRING:
        return _cast_to_powers(n, to)
    if x.dtype.is_float and to.is_integer and to.bits < 8:
        # Values that are too large lose their higher bits, as in conversions of integers.
        x = n.builder.cast(x, dtype="int32")
    return n.builder.cast(x, dtype=to, saturate=n.flag("saturate", True))


def _cast_to_powers(n: Node, to: DType) -> Value:
    """To powers of two: rounded up unless the node says otherwise."""
    b, mode = n.builder, n.text("round_mode", "up")
    if mode not in _HALF:
        raise UserError(f"round_mode is {mode!r}", remedy="use up, down or nearest")
    x: Any = b.cast(n[0], dtype="float32")
    bits: Any = b.bitcast(x, dtype="int32")
    rounded = b.bitwise_and(bits + _HALF[mode], n.constant(0x7F800000, "int32"))
    least, nan = n.constant(0x00400000, "int32"), n.constant(_NAN, "int32")
    if n.flag("saturate", True):
        rounded = b.clip(rounded, None, n.constant(0x7F000000, "int32"))
        # The least power is a denormal.
        rounded = b.where(b.less_equal(bits, least), least, rounded)
    else:
        rounded = b.where(b.less(bits, least), nan, rounded)
    result = b.where(b.isnan(x), x, b.bitcast(rounded, dtype="float32"))
    return b.cast(result, dtype=to)


_NAN: Final = 0x7FC00000
#: Addends to the bits of a float32 before its mantissa is cut off.
_HALF: Final = {"up": 0x007FFFFF, "down": 0, "nearest": 0x00400000}


@converts("BitCast")
def bit_cast(n: Node) -> Value:
    return n.builder.bitcast(n[0], dtype=n.dtype("to"))


# ---- dropout ------------------------------------------------------------------------------------


@converts("Dropout", until=12)
def dropout(n: Node) -> list[Value]:
    """Nothing is dropped at inference."""
    return [n[0], *_kept(n)]


@converts("Dropout", since=12)
def dropout_by_operands(n: Node) -> list[Value]:
    """Nothing is dropped unless the model is in training mode."""
    ratio = n.find_array(1)
    is_trained = n.get(2) is not None and bool(n.array(2).any())
    if not is_trained or (ratio is not None and not ratio.any()):
        return [n[0], *_kept(n)]
    return _dropped(n)


def _kept(n: Node) -> list[Value]:
    """The mask: everything is kept."""
    if not n.wants(1):
        return []
    dtype = "bool" if n.version >= 10 else n[0].dtype
    return [n.builder.full(n.constant(1, dtype), shape=n[0].shape)]


def _dropped(n: Node) -> list[Value]:
    """Elements are dropped randomly; the others are scaled to keep the mean."""
    b, x = n.builder, n[0]
    ratio = n.scalar(0.5, x) if n.get(1) is None else b.cast(n[1], dtype=x.dtype)
    mask = b.greater_equal(b.random_uniform(random_key(n), shape=x.shape, dtype=x.dtype), ratio)
    scaled = b.div(x, b.sub(n.scalar(1.0, x), ratio))
    return [b.where(mask, scaled, n.scalar(0.0, x)), mask]
