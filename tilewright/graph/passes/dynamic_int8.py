"""Computes products by constant weights in bytes, where `precision="int8-dynamic"` asks for it.

    y = dense(x, w, b)
    -->
    q, s = quantize_rows(x)                       bytes, and a scale for each row, at run time
    t = matmul_integer(q, bytes of w)             exact sums in int32
    y = add(mul(mul(cast(t), s), scales of w), b)

Weights have a scale for each column, and are quantized here once. What reads the same rows shares
their bytes. Everything else stays in float32.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from tilewright.graph.builder import Builder
from tilewright.graph.context import PassContext
from tilewright.graph.ir import Array, Binding, Call, Graph, Module, Value
from tilewright.graph.ops.quantize_rows import GREATEST, LEAST
from tilewright.graph.rewrite import Rewriter
from tilewright.ir import DType

#: Weights of a product below which it gains nothing.
_WORTH: Final = 1 << 10
_FLOAT32: Final = DType.of("float32")


def dynamic_int8(module: Module) -> Module:
    """The module with products in bytes, if that precision is asked for."""
    if PassContext.current().precision != "int8-dynamic":
        return module
    return module.map(lambda f: _Quantizer().graph(f))


class Product(NamedTuple):
    """A call as rows of `x` by columns of constant weights, times `factor`, plus `addend`."""

    x: Value
    weight: Value
    #: Whether the weights have one row, not one column, for each result.
    turned: bool
    factor: float = 1.0
    addend: Value | None = None
    addend_factor: float = 1.0

    @property
    def columns(self) -> Array:
        array = self.weight.constant
        assert array is not None
        return array.T if self.turned else array


def as_product(call: Call) -> Product | None:
    """The call as a product of rows by constant weights, if it is one in float32."""
    found = _PRODUCTS[call.op.name](call) if call.op.name in _PRODUCTS else None
    if found is None or found.x.is_constant or found.weight.constant is None:
        return None
    fits = found.x.ndim >= 2 and found.weight.ndim == 2 and found.x.dtype is _FLOAT32
    return found if fits else None


def _of_matmul(call: Call) -> Product | None:
    if call.attrs["transpose_a"]:
        return None
    x, weight = _operands(call)
    return Product(x, weight, call.attrs["transpose_b"])


def _of_dense(call: Call) -> Product | None:
    x, weight = _operands(call)
    return Product(x, weight, True, addend=call.args[2])


def _of_gemm(call: Call) -> Product | None:
    if call.attrs["transpose_a"]:
        return None
    x, weight = _operands(call)
    alpha, beta, turned = (call.attrs[n] for n in ("alpha", "beta", "transpose_b"))
    return Product(x, weight, turned, alpha, call.args[2], beta)


def _operands(call: Call) -> tuple[Value, Value]:
    x, weight = call.args[:2]
    assert x is not None and weight is not None
    return x, weight


_PRODUCTS: Final = {"matmul": _of_matmul, "dense": _of_dense, "gemm": _of_gemm}


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
        if product is None or product.columns.size < _WORTH:
            return (binding,)
        weights = self._quantized(product)
        # What is not finite has no bytes that stand for it.
        if not np.isfinite(weights[1]).all():
            return (binding,)
        return self._written(binding, product, *weights)

    def _quantized(self, product: Product) -> tuple[Array, Array]:
        key = (id(product.weight.constant), product.turned)
        if key not in self._weights:
            self._weights[key] = quantized_columns(product.columns)
        return self._weights[key]

    def _written(
        self, binding: Binding, product: Product, stored: Array, scales: Array
    ) -> Sequence[Binding]:
        b, old = Builder(), binding.outputs[0]
        b.origin = binding.origin
        rows, scale = self._rows_of(product.x, b)
        total = b.emit("matmul_integer", rows, b.constant(stored, name=product.weight.name))
        real = b.emit("mul", b.emit("cast", total, dtype=_FLOAT32), scale)
        factors = b.constant(scales * np.float32(product.factor), name="scales")
        result = b.emit("mul", real, factors)
        if product.addend is not None:
            result = b.emit("add", result, _scaled(b, product))
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


def _scaled(b: Builder, product: Product) -> Any:
    addend, factor = product.addend, product.addend_factor
    return addend if factor == 1 else b.emit("mul", addend, np.float32(factor))


def quantized_columns(columns: Array) -> tuple[Array, Array]:
    """Weights as bytes, and the scale of each column: not finite where its weights are not."""
    greatest = np.abs(columns).max(axis=0, initial=0)
    scales = np.where(greatest < LEAST, 1, greatest / GREATEST).astype(np.float32)
    with np.errstate(invalid="ignore"):
        stored = np.rint(columns / scales).astype(np.int8)
    return np.ascontiguousarray(stored), scales
