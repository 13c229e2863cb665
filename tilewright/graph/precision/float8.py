"""Products by constant weights in floats of eight bits (e4m3), summed in float32.

    y = dense(x, w, b)
    -->
    q, s = float8_rows(x)                         one scale for each row: max(abs(x)) / 448
    t = matmul(q, float8 of w, dtype=float32)
    y = add(mul(mul(t, s), scales of w), b)

    y = conv(x, w, b)                             the same, with one scale for each image

Weights have a scale for each output, and are rounded here once, so that 448, the greatest of these
floats, stands for the greatest weight of an output. Products of the same rows share these. For GPUs
that multiply such floats; everything else stays in float32, and so do weights that are not finite.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from tilewright.graph.ir import Array, Call, Value
from tilewright.graph.ops.forms.float8_rows import FLOAT8
from tilewright.graph.ops.forms.quantize_rows import LEAST
from tilewright.graph.precision.images import image_scales
from tilewright.graph.precision.products import PRODUCTS, as_product, is_dense_convolution
from tilewright.graph.precision.rewriter import Rules, Writing
from tilewright.ir import DType
from tilewright.target import Target

_FLOAT32: Final = DType.of("float32")
_GREATEST: Final = FLOAT8.max_value
#: Fewest weights for which a product gains.
_WORTH: Final = 1 << 10


def float8_rules(target: Target) -> Rules:
    """The rules for a machine; none where it has no such products."""
    if target.gpu is None or not target.gpu.multiplies(FLOAT8.name):
        return {}
    return {**dict.fromkeys(PRODUCTS, _product), "conv": _conv}


def _product(call: Call, w: Writing) -> Sequence[Value] | None:
    product = as_product(call)
    columns = None if product is None else product.columns
    found = None if columns is None or columns.size < _WORTH else _rounded(columns.T)
    if product is None or found is None:
        return None
    stored, scales = found
    rows, scale = w.once("float8 rows", product.x, lambda x: w.emit("float8_rows", x))
    weight = w.constant(stored, name=product.weight.name)
    total = w.emit("matmul", rows, weight, transpose_b=True, dtype=_FLOAT32)
    real = w.emit("mul", total, scale)
    result = w.emit("mul", real, w.constant(scales * np.float32(product.factor)))
    if product.addend is not None:
        result = w.emit("add", result, product.scaled_addend(w))
    return [result]


def _conv(call: Call, w: Writing) -> Sequence[Value] | None:
    x, weight, bias = call.args
    array = None if weight is None else weight.constant
    if x is None or weight is None or array is None or not is_dense_convolution(call):
        return None
    found = _rounded(array.reshape(len(array), -1))
    if found is None:
        return None
    factors = w.constant(found[0].reshape(array.shape), name=weight.name)
    image, scale = w.once("float8 image", x, lambda x: _image(x, w))
    (total,) = w.emit_all(call.op, [image, factors], {**call.attrs, "dtype": _FLOAT32})

    def by_channel(numbers: Array) -> Array:
        return numbers.reshape(-1, *[1] * (x.ndim - 2))

    result = w.emit("mul", w.emit("mul", total, by_channel(found[1])), scale)
    if bias is not None:
        assert bias.constant is not None  # dense convolutions have constant biases
        result = w.emit("add", result, by_channel(bias.constant))
    return [result]


def _image(x: Value, w: Writing) -> tuple[Value, Value]:
    """Floats of eight bits, and the scale of each image."""
    factor, scale = image_scales(x, _GREATEST, w)
    return w.emit("cast", w.emit("mul", x, factor), dtype=FLOAT8), scale


def _rounded(rows: Array) -> tuple[Array, Array] | None:
    """Weights N×K in floats of eight bits, and the scale of each row; None where they are not
    finite."""
    greatest = np.abs(rows).max(axis=1, initial=0)
    if not np.isfinite(greatest).all():
        return None
    scales = np.where(greatest < LEAST, 1, greatest / np.float32(_GREATEST)).astype(np.float32)
    scaled = np.clip(rows / scales[:, None], -_GREATEST, _GREATEST)
    return np.ascontiguousarray(scaled.astype(FLOAT8.numpy)), scales
