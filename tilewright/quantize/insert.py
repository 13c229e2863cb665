"""Rewrites a graph with layers in int8, expressed by quantize and dequantize.

    y = conv(x, w, b)
    -->
    q = quantize(x, s, z)                               once for all layers that read x
    y = conv(dequantize(q, s, z), dequantize(bytes of w, scales), dequantize(int32 of b, …))

Most tools represent quantized models this way (QDQ). The compiler turns it into int8 products
(`graph.passes.quantized_products`) where a machine has instructions for these.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final

import numpy as np

from tilewright.graph import Array, Binding, Builder, Call, Function, Module, Rewriter, Value
from tilewright.quantize.layers import Layer
from tilewright.quantize.plan import Plan
from tilewright.quantize.ranges import Scale

#: Largest bias in int32.
_MOST: Final = 2**31 - 1


def quantized_module(plan: Plan, chosen: Collection[Layer]) -> Module:
    """The module with these layers quantized."""
    return Inserter(plan, chosen).module(plan.module)


class Inserter(Rewriter):
    """Rewrites layers and their inputs according to a plan."""

    def __init__(self, plan: Plan, chosen: Collection[Layer]) -> None:
        super().__init__()
        self.plan = plan
        self._layers = {layer.output: layer for layer in chosen}
        self._wanted = plan.stored(chosen)
        self._outputs = set(plan.module.main.results)
        #: The dequantized replacement of each value that is stored as bytes.
        self._pairs: dict[Value, Value] = {}

    # ---- quantize and dequantize -----------------------------------------------------------------

    def pair(self, b: Builder, x: Value, source: Value) -> Value:
        """`source`, in place of `x`, quantized and dequantized."""
        scale = self.plan.inputs[x]
        stored = b.emit("quantize", source, *_constants(b, scale), name=f"{x.name}_quantized")
        return b.emit("dequantize", stored, *_constants(b, scale), name=f"{x.name}_dequantized")

    def weight(self, b: Builder, layer: Layer) -> Value:
        """The dequantized int8 weights of a layer."""
        found = self.plan.weights[layer]
        stored = b.constant(found.array, name=f"{layer.weight.name}_quantized")
        scales = b.constant(found.scales, name=f"{layer.weight.name}_scale")
        return b.emit("dequantize", stored, scales, axis=layer.axis, name=layer.weight.name)

    def bias(self, b: Builder, layer: Layer) -> Value | None:
        """The bias of a layer, in units of its products if it fits int32."""
        total = corrected_bias(self.plan, layer)
        if total is None:
            return None
        scale = self.plan.inputs[layer.x].scale
        scales = (np.float32(scale) * self.plan.weights[layer].scales).astype(np.float32)
        with np.errstate(all="ignore"):
            stored = np.rint(total.astype(np.float64) / scales)
        if total.ndim != 1 or not (np.abs(stored) <= _MOST).all():
            return b.constant(total)
        name = f"{layer.name}_bias"
        integers = b.constant(stored.astype(np.int32), name=f"{name}_quantized")
        return b.emit("dequantize", integers, b.constant(scales), axis=0, name=name)

    # ---- traversal -------------------------------------------------------------------------------

    def visit(self, binding: Binding) -> Sequence[Binding]:
        layer = next((self._layers[v] for v in binding.outputs if v in self._layers), None)
        made = [binding] if layer is None else self._layer(binding, layer)
        for value in binding.outputs:
            if value in self._wanted:
                made += self._after(value)
        return made

    def _after(self, value: Value) -> list[Binding]:
        """Quantize a value right after its definition; its other users may read the bytes too."""
        b = Builder()
        self._pairs[value] = made = self.pair(b, value, value)
        if value in self.plan.shared and value not in self._outputs:
            self.replace(value, made)
        return b.function().body

    def _layer(self, binding: Binding, layer: Layer) -> list[Binding]:
        b = Builder()
        b.origin = binding.origin
        if layer.x not in self._pairs:
            self._pairs[layer.x] = self.pair(b, layer.x, layer.x)
        return [*self._called(b, binding, layer)]

    def _called(self, b: Builder, binding: Binding, layer: Layer) -> Sequence[Binding]:
        call = binding.expr
        assert isinstance(call, Call)
        args: list[Any] = [self._pairs[layer.x], self.weight(b, layer), *call.args[2:]]
        bias = self.bias(b, layer)
        if layer.row.bias is not None:
            args[layer.row.bias] = bias
        result = b.emit(call.op, *args, **call.attrs)
        if layer.row.bias is None and bias is not None:
            result = b.emit("add", result, bias)
        b.output(result)
        return _named(b.function(), binding)


def _named(made: Function, binding: Binding) -> Sequence[Binding]:
    """The function's body, with the binding's outputs for its last result."""
    *rest, last = made.body
    return [*rest, Binding(binding.outputs, last.expr, last.origin)]


def _constants(b: Builder, scale: Scale) -> tuple[Value, Value]:
    zero = np.array(scale.zero, scale.dtype)
    return b.constant(np.float32(scale.scale), name="scale"), b.constant(zero, name="zero_point")


def corrected_bias(plan: Plan, layer: Layer) -> Array | None:
    """The bias of a layer, corrected by the mean error of its rounded weights."""
    correction = plan.corrections.get(layer)
    if correction is None or not np.isfinite(correction).all() or not correction.any():
        return layer.bias
    return correction if layer.bias is None else (layer.bias + correction).astype(np.float32)
