"""Products of bfloat16, summed in float32.

    y = dense(x, w, b)
    -->
    y = add(matmul(cast(x), bfloat16 of w, dtype=float32), b)

    y = conv(x, w, b)
    -->
    y = conv(cast(x), bfloat16 of w, b, dtype=float32)

Only for machines that have instructions for it: others would convert everything back. Weights take
half the memory. Operands of several products are rounded once; all else stays in float32, such as
convolutions of few channels, of groups, and of images of unknown size. Where an image was rounded
for a convolution, a later addition reads the rounded one: it need not be stored in float32 too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tilewright.graph.ir import Call, Value
from tilewright.graph.ir.types import TensorType, known_dim
from tilewright.graph.precision.products import (
    PRODUCTS,
    MatrixProduct,
    as_product,
    is_dense_convolution,
    written,
)
from tilewright.graph.precision.rewriter import Rules, Writing
from tilewright.ir import DType
from tilewright.target import Target

_FLOAT32, _BF16 = DType.of("float32"), DType.of("bfloat16")
#: If both factors are computed, products with fewer rows or columns stay as they are.
_LEAST: Final = 16


def bf16_rules(target: Target) -> Rules:
    """The rules for a machine; none where it has no such products."""
    if not target.has_bf16_products:
        return {}
    return {**dict.fromkeys(PRODUCTS, _product), "conv": _conv, "add": _beside, "mul": _beside}


def _product(call: Call, w: Writing) -> Sequence[Value] | None:
    product = as_product(call)
    if product is None or not _pays(product):
        return None
    x, weight = _rounded(product.x, w), _rounded(product.weight, w)
    return [written(product._replace(x=x, weight=weight), w)]


def _conv(call: Call, w: Writing) -> Sequence[Value] | None:
    x, weight, bias = call.args
    if x is None or weight is None or not is_dense_convolution(call):
        return None
    (image,) = w.once("image", x, lambda x: [_rounded(x, w)])
    operands = [image, _rounded(weight, w), bias]
    return w.emit_all(call.op, operands, {**call.attrs, "dtype": _FLOAT32})


def _beside(call: Call, w: Writing) -> Sequence[Value] | None:
    """A map of images, some of which were rounded before: those are read rounded."""
    (out,) = call.op.infer(call.args, call.attrs)
    assert isinstance(out, TensorType)

    def read(value: Value | None) -> Value | None:
        image = None if value is None else w.known("image", value)
        if image is None or image[0].shape != out.shape:
            return value
        return w.emit("cast", image[0], dtype=_FLOAT32)

    args = [read(a) for a in call.args]
    return None if args == list(call.args) else w.emit_all(call.op, args, call.attrs)


def _rounded(value: Value, w: Writing) -> Value:
    def make(value: Value) -> list[Value]:
        array = value.constant
        if array is None:
            return [w.emit("cast", value, dtype=_BF16)]
        return [w.constant(array.astype(_BF16.numpy), name=value.name)]

    return w.once("bf16", value, make)[0]


def _pays(product: MatrixProduct) -> bool:
    """Whether there is an instruction for it: weights are constant and packed beforehand, or there
    are many rows and columns."""
    if product.columns is not None:
        return True
    rows = known_dim(product.x.shape[-2])
    columns = known_dim(product.weight.shape[-2 if product.transposed else -1])
    return min(rows or 0, columns or 0) >= _LEAST
