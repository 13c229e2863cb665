"""Computes products by constant weights in bytes, where `precision="int8-dynamic"` asks for it.

    y = dense(x, w, b)
    -->
    q, s, z = quantize_rows(x)                    bytes, a scale and a zero point for each row
    t = matmul_integer(q, bytes of w)             exact sums in int32
    y = add(mul(mul(cast(sub(t, mul(z, sums of w))), s), scales of w), b)

Weights have a scale for each column and no zero point, and are quantized here once. What reads the
same rows shares their bytes. Everything else stays in float32.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from tilewright.graph.builder import Builder
from tilewright.graph.context import PassContext
from tilewright.graph.ir import Array, Binding, Call, Graph, Module, Value
from tilewright.graph.ops.quantize_rows import LEAST
from tilewright.graph.products import Product, as_product
from tilewright.graph.rewrite import Rewriter
from tilewright.ir import DType

#: Weights of a product below which it gains nothing.
_WORTH: Final = 1 << 10
#: The largest byte of a weight: -128 is none, so that both signs reach as far.
_GREATEST: Final = 127
_FLOAT32: Final = DType.of("float32")


def dynamic_int8(module: Module) -> Module:
    """The module with products in bytes, if that precision is asked for."""
    if PassContext.current().precision != "int8-dynamic":
        return module
    return module.map(lambda f: _Quantizer().graph(f))


class _Quantizer(Rewriter):
    def __init__(self) -> None:
        super().__init__()
        #: The bytes and scales of rows, in the graphs that are open.
        self._rows: list[dict[Value, Sequence[Value]]] = []
        self._weights: dict[tuple[int, bool], tuple[Array, Array]] = {}

    def enter(self, graph: Graph) -> None:
        self._rows.append({})

    def leave(self, graph: Graph) -> None:
        self._rows.pop()

    def visit(self, binding: Binding) -> Sequence[Binding]:
        call = binding.expr
        product = as_product(call) if isinstance(call, Call) else None
        columns = None if product is None else product.columns
        if product is None or columns is None or columns.size < _WORTH:
            return (binding,)
        weights = self._quantized(product, columns)
        # What is not finite has no bytes that stand for it.
        if not np.isfinite(weights[1]).all():
            return (binding,)
        return self._written(binding, product, *weights)

    def _quantized(self, product: Product, columns: Array) -> tuple[Array, Array]:
        key = (id(product.weight.constant), product.turned)
        if key not in self._weights:
            self._weights[key] = quantized_columns(columns)
        return self._weights[key]

    def _written(
        self, binding: Binding, product: Product, stored: Array, scales: Array
    ) -> Sequence[Binding]:
        b, old = Builder(), binding.outputs[0]
        b.origin = binding.origin
        rows, scale, zero = self._rows_of(product.x, b)
        columns = b.constant(stored, name=product.weight.name)
        total = b.emit("matmul_integer", rows, columns)
        sums = b.constant(stored.sum(axis=0, dtype=np.int32), name="sums")
        centred = b.emit("sub", total, b.emit("mul", zero, sums))
        real = b.emit("mul", b.emit("cast", centred, dtype=_FLOAT32), scale)
        factors = b.constant(scales * np.float32(product.factor), name="scales")
        result = b.emit("mul", real, factors)
        if product.addend is not None:
            result = b.emit("add", result, product.scaled_addend(b))
        b.output(result)
        *rest, last = b.function().body
        return [*rest, Binding((old,), last.expr, last.origin)]

    def _rows_of(self, x: Value, b: Builder) -> Sequence[Value]:
        for known in self._rows:
            if x in known:
                return known[x]
        made = b.emit("quantize_rows", x)
        self._rows[-1][x] = made
        return made


def quantized_columns(columns: Array) -> tuple[Array, Array]:
    """Weights as bytes, and the scale of each column: not finite where its weights are not."""
    greatest = np.abs(columns).max(axis=0, initial=0)
    scales = np.where(greatest < LEAST, 1, greatest / _GREATEST).astype(np.float32)
    with np.errstate(invalid="ignore"):
        stored = np.rint(columns / scales).astype(np.int8)
    return np.ascontiguousarray(stored), scales
