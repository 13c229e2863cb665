"""Products by constant weights in bytes.

    y = dense(x, w, b)
    -->
    q, s, z = quantize_rows(x)                    bytes, a scale and a zero point for each row
    t = matmul_integer(q, bytes of w)             exact sums in int32
    y = add(mul(mul(cast(sub(t, mul(z, sums of w))), s), scales of w), b)

Weights have a scale for each column and no zero point, and are quantized here once. Products of the
same rows share their bytes. The scans of recurrent networks quantize their states at every step
(`graph.ops.recurrent.recurrent`).

    y = conv(x, w, b)
    -->
    s = max(abs(x)) / 127                         one scale for each image, and no zero point
    t = conv(to_bytes(x, 1 / s), bytes of w, dtype=int32)
    y = add(mul(mul(cast(t), scales of w), s), b)

Images that cannot be negative have unsigned bytes. Convolutions stay as they are on machines
without instructions for bytes, if these do not apply (`products.is_dense_convolution`), or if
Winograd's algorithm makes them faster in float32. Everything else stays in float32.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

import numpy as np

from tilewright.graph.ir import Array, Call, Value
from tilewright.graph.ir.types import TensorType
from tilewright.graph.ops.forms.quantize_rows import LEAST
from tilewright.graph.ops.recurrent.recurrent import SCANS
from tilewright.graph.precision.images import image_scales, is_nonnegative
from tilewright.graph.precision.products import PRODUCTS, as_product, is_dense_convolution
from tilewright.graph.precision.rewriter import Rules, Writing
from tilewright.graph.rewriting.context import PassContext, Step
from tilewright.graph.winograd.cost import least_share
from tilewright.ir import DType
from tilewright.target import Target

#: Fewest weights for which a product gains.
_WORTH: Final = 1 << 10
#: The largest magnitude of a quantized weight: -128 is not used, so that the range is symmetric.
_GREATEST: Final = 127
_FLOAT32, _INT32, _INT8, _UINT8 = (DType.of(t) for t in ("float32", "int32", "int8", "uint8"))


def int8_rules(target: Target, winograd: Step | None) -> Rules:
    """The rules for a machine, where `winograd` is the pass that may rewrite convolutions later."""
    rules = {**dict.fromkeys(PRODUCTS, _product), **dict.fromkeys(SCANS, _scan)}
    if not target.has_byte_products:
        return rules
    pays = partial(_conv_where_it_pays, target=target, winograd=winograd)
    # Matrix units are faster than Winograd's algorithm in any case.
    has_matrix_unit = target.gpu is not None or target.has("amx-int8")
    return rules | {"conv": _conv if has_matrix_unit else pays}


def _product(call: Call, w: Writing) -> Sequence[Value] | None:
    product = as_product(call)
    columns = None if product is None else product.columns
    if product is None or columns is None or columns.size < _WORTH:
        return None
    what = "rows in bytes" if product.transposed else "columns in bytes"
    weights = w.once(what, product.weight, lambda v: _quantized(columns, v.name, w))
    if not weights:
        return None
    stored, sums, scales = weights
    rows, scale, zero = w.once("bytes", product.x, lambda x: w.emit("quantize_rows", x))
    total = w.emit("matmul_integer", rows, stored)
    centred = w.emit("sub", total, w.emit("mul", zero, sums))
    real = w.emit("mul", w.emit("cast", centred, dtype=_FLOAT32), scale)
    result = w.emit("mul", real, _scaled(scales, product.factor, w))
    if product.addend is not None:
        result = w.emit("add", result, product.scaled_addend(w))
    return [result]


def _quantized(columns: Array, name: str, w: Writing) -> Sequence[Value]:
    """Constants: bytes, and their sum and scale for each column; empty where not quantized."""
    found = quantized_columns(columns)
    if found is None:
        return ()
    stored, scales = found
    sums = stored.sum(axis=0, dtype=np.int32)
    return w.constant(stored, name=name), w.constant(sums, name="sums"), w.constant(scales)


def _scaled(scales: Value, factor: float, w: Writing) -> Value:
    assert scales.constant is not None
    return scales if factor == 1 else w.constant(scales.constant * np.float32(factor))


def _scan(call: Call, w: Writing) -> Sequence[Value] | None:
    products, weight, *others, scales = call.args
    array = None if weight is None else weight.constant
    if products is None or products.dtype is not _FLOAT32 or scales is not None or array is None:
        return None
    found = quantized_columns(array) if array.size >= _WORTH else None
    if weight is None or found is None:
        return None
    stored, factors = w.constant(found[0], name=weight.name), w.constant(found[1], name="scales")
    return w.emit_all(call.op, [products, stored, *others, factors], call.attrs)


# ---- convolutions -------------------------------------------------------------------------------


def _conv_where_it_pays(
    call: Call, w: Writing, target: Target, winograd: Step | None
) -> Sequence[Value] | None:
    will_run = winograd is not None and PassContext.current().runs(winograd)
    return None if will_run and _winograd_is_faster(call, target) else _conv(call, w)


def _winograd_is_faster(call: Call, target: Target) -> bool:
    """Whether Winograd's algorithm in float32 is predicted to be faster than quantizing the image
    and products of bytes, which are at best four times as fast as those of float32."""
    (out,) = call.op.infer(call.args, call.attrs)
    assert isinstance(out, TensorType)
    return least_share(call, out, target) <= target.timing.conv.bytes_share


def _conv(call: Call, w: Writing) -> Sequence[Value] | None:
    x, weight, bias = call.args
    array = None if weight is None else weight.constant
    if x is None or weight is None or array is None or not is_dense_convolution(call):
        return None
    found = quantized_columns(array.reshape(len(array), -1).T)
    if found is None:
        return None
    factors = w.constant(np.ascontiguousarray(found[0].T).reshape(array.shape), name=weight.name)
    image, scale = w.once("image in bytes", x, lambda x: _image(x, w))
    (total,) = w.emit_all(call.op, [image, factors], {**call.attrs, "dtype": _INT32})

    def by_channel(numbers: Array) -> Array:
        return numbers.reshape(-1, *[1] * (x.ndim - 2))

    real = w.emit("cast", total, dtype=_FLOAT32)
    result = w.emit("mul", w.emit("mul", real, by_channel(found[1])), scale)
    if bias is not None:
        assert bias.constant is not None  # dense convolutions have constant biases
        result = w.emit("add", result, by_channel(bias.constant))
    return [result]


def _image(x: Value, w: Writing) -> tuple[Value, Value]:
    """Bytes, and the scale of each image."""
    dtype = _UINT8 if is_nonnegative(x, w) else _INT8
    factor, scale = image_scales(x, dtype.max_value, w)
    return w.emit("to_bytes", x, factor, dtype=dtype), scale


def quantized_columns(weights: Array) -> tuple[Array, Array] | None:
    """Weights …×K×N as bytes, and the scale of each column, …×N; None where they are not
    finite, and cannot be quantized."""
    greatest = np.abs(weights).max(axis=-2, initial=0)
    if not np.isfinite(greatest).all():
        return None
    scales = np.where(greatest < LEAST, 1, greatest / _GREATEST).astype(np.float32)
    stored = np.rint(weights / scales[..., None, :]).astype(np.int8)
    return np.ascontiguousarray(stored), scales
