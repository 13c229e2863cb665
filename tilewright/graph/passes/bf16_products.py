"""Multiplies in bfloat16 and sums in float32, where `precision="bf16"` asks for it.

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

from tilewright.graph.builder import Builder
from tilewright.graph.context import Pass, PassContext
from tilewright.graph.ir import Binding, Call, Graph, Module, Value
from tilewright.graph.products import Product, as_product
from tilewright.graph.rewrite import Rewriter
from tilewright.graph.types import known_dim
from tilewright.ir import DType
from tilewright.target import Target

_FLOAT32, _BF16 = DType.of("float32"), DType.of("bfloat16")
#: Rows and columns of computed factors below which they stay as they are.
_FEW: Final = 16


def bf16_products(target: Target) -> Pass:
    """The pass for a machine."""

    def bf16_products(module: Module) -> Module:
        """The module with products of bfloat16, if that is asked for and the machine gains."""
        if PassContext.current().precision != "bf16" or not target.has_bf16_products:
            return module
        return module.map(lambda f: _Rounder().graph(f))

    return bf16_products


class _Rounder(Rewriter):
    def __init__(self) -> None:
        super().__init__()
        #: What was rounded, in the graphs that are open.
        self._rounded: list[dict[Value, Value]] = []

    def enter(self, graph: Graph) -> None:
        self._rounded.append({})

    def leave(self, graph: Graph) -> None:
        self._rounded.pop()

    def visit(self, binding: Binding) -> Sequence[Binding]:
        call = binding.expr
        product = as_product(call) if isinstance(call, Call) else None
        if product is None or not _pays(product):
            return (binding,)
        return self._written(binding, product)

    def _written(self, binding: Binding, product: Product) -> Sequence[Binding]:
        b, old = Builder(), binding.outputs[0]
        b.origin = binding.origin
        x, weight = self._round(product.x, b), self._round(product.weight, b)
        result = b.emit("matmul", x, weight, transpose_b=product.turned, dtype=_FLOAT32)
        if product.factor != 1:
            result = b.emit("mul", result, np.float32(product.factor))
        if product.addend is not None:
            result = b.emit("add", result, product.scaled_addend(b))
        b.output(result)
        *rest, last = b.function().body
        return [*rest, Binding((old,), last.expr, last.origin)]

    def _round(self, value: Value, b: Builder) -> Value:
        for known in self._rounded:
            if value in known:
                return known[value]
        array = value.constant
        if array is None:
            made = b.emit("cast", value, dtype=_BF16)
        else:
            made = b.constant(array.astype(_BF16.numpy), name=value.name)
        self._rounded[-1][value] = made
        return made


def _pays(product: Product) -> bool:
    """Whether there is an instruction for it: weights are packed beforehand, or there are many
    rows and columns."""
    if product.columns is not None:
        return True
    rows = known_dim(product.x.shape[-2])
    columns = known_dim(product.weight.shape[-2 if product.turned else -1])
    return min(rows or 0, columns or 0) >= _FEW
