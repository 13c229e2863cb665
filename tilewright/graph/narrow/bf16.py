"""Products of bfloat16, summed in float32.

    y = dense(x, w, b)
    -->
    y = add(matmul(cast(x), bfloat16 of w, dtype=float32), b)

Only for machines that have instructions for it: others would convert everything back. Weights take
half the memory. What goes into several products is rounded once; all else stays in float32.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from tilewright.graph.ir import Call, Value
from tilewright.graph.narrow.rewriter import Rules, Writing
from tilewright.graph.products import PRODUCTS, Product, as_product
from tilewright.graph.types import known_dim
from tilewright.ir import DType
from tilewright.target import Target

_FLOAT32, _BF16 = DType.of("float32"), DType.of("bfloat16")
#: Rows and columns of computed factors below which they stay as they are.
_FEW: Final = 16


def bf16_rules(target: Target) -> Rules:
    """The rules for a machine; none where it has no such products."""
    return dict.fromkeys(PRODUCTS, _product) if target.has_bf16_products else {}


def _product(call: Call, w: Writing) -> Sequence[Value] | None:
    product = as_product(call)
    if product is None or not _pays(product):
        return None
    x, weight = _rounded(product.x, w), _rounded(product.weight, w)
    result = w.emit("matmul", x, weight, transpose_b=product.turned, dtype=_FLOAT32)
    if product.factor != 1:
        result = w.emit("mul", result, np.float32(product.factor))
    if product.addend is not None:
        result = w.emit("add", result, product.scaled_addend(w))
    return [result]


def _rounded(value: Value, w: Writing) -> Value:
    def make(value: Value) -> list[Value]:
        array = value.constant
        if array is None:
            return [w.emit("cast", value, dtype=_BF16)]
        return [w.constant(array.astype(_BF16.numpy), name=value.name)]

    return w.once("bf16", value, make)[0]


def _pays(product: Product) -> bool:
    """Whether there is an instruction for it: weights are packed beforehand, or there are many
    rows and columns."""
    if product.columns is not None:
        return True
    rows = known_dim(product.x.shape[-2])
    columns = known_dim(product.weight.shape[-2 if product.turned else -1])
    return min(rows or 0, columns or 0) >= _FEW
