"""A float model in which each layer is quantized or not by a run-time switch, to try many choices
without compiling a model for each."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import numpy as np

from tilewright.graph import Array, Builder, Function, Module, Value
from tilewright.quantize.insert import Inserter, corrected_bias
from tilewright.quantize.layers import Layer
from tilewright.quantize.plan import Plan

#: The inputs with the switches of values and of layers.
_VALUES: Final = "quantized values"
_LAYERS: Final = "quantized layers"


class Simulation:
    """A compiled model with a switch for each layer."""

    def __init__(self, plan: Plan) -> None:
        from tilewright.compile import compile

        self._plan, self._layers = plan, plan.layers
        self._values = list(dict.fromkeys([*(layer.x for layer in plan.layers), *plan.images]))
        switching = _Switching(plan, self._values)
        self._model: Any = compile(switching.switched())

    def run(self, batch: Mapping[str, Any], chosen: Collection[Layer]) -> list[Array]:
        """The outputs for a batch with only these layers quantized."""
        stored = self._plan.stored(chosen)
        switches = {
            _VALUES: np.array([v in stored for v in self._values]),
            _LAYERS: np.array([layer in chosen for layer in self._layers]),
        }
        return self._model.run({**batch, **switches})


class _Switching(Inserter):
    def __init__(self, plan: Plan, values: Sequence[Value]) -> None:
        super().__init__(plan, plan.layers)
        b = Builder()
        self._value_switches = b.input(_VALUES, "bool", (len(values),))
        self._layer_switches = b.input(_LAYERS, "bool", (len(plan.layers),))
        self._value_numbers = {v: k for k, v in enumerate(values)}
        self._layer_numbers = {layer: k for k, layer in enumerate(plan.layers)}

    def switched(self) -> Module:
        main = self.graph(self.plan.module.main)
        params = [*main.params, self._value_switches, self._layer_switches]
        return Module([Function("main", params, main.body, main.results, main.outputs)])

    def pair(self, b: Builder, x: Value, source: Value) -> Value:
        quantized = super().pair(b, x, source)
        return _either(b, self._value_switches, self._value_numbers[x], quantized, source)

    def weight(self, b: Builder, layer: Layer) -> Value:
        quantized = super().weight(b, layer)
        number = self._layer_numbers[layer]
        return _either(b, self._layer_switches, number, quantized, layer.weight)

    def bias(self, b: Builder, layer: Layer) -> Value | None:
        quantized = super().bias(b, layer)
        if quantized is None:
            return None
        own = (
            layer.bias
            if layer.bias is not None
            else np.zeros_like(corrected_bias(self.plan, layer))
        )
        number = self._layer_numbers[layer]
        return _either(b, self._layer_switches, number, quantized, b.constant(own))


def _either(b: Builder, switches: Value, number: int, a: Value, other: Value) -> Value:
    """One of two values, by a run-time switch."""
    part = b.emit("slice", switches, starts=[number], ends=[number + 1], axes=[0])
    return b.emit("where", b.emit("reshape", part, shape=[]), a, other)
