"""Models with their intermediate values as outputs, to find the layer at fault.

A model is cut at its kernels, which are not changed: only the values between them become outputs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from tilewright.graph import Array, Binding, Function, Module, TensorType, Value

if TYPE_CHECKING:
    from tilewright.target import Target


class Layer(NamedTuple):
    """A value of a model: its name, its origin in the model, and the array."""

    name: str
    origin: str
    value: Array


def reference_layers(module: Module, inputs: Mapping[str, Any]) -> list[Layer]:
    """All values of a graph by the operators' reference implementations, in order."""
    from tilewright.graph import evaluate

    taps, tapped = _tapped(module)
    return _layers(taps, evaluate(tapped, inputs))


def compiled_layers(module: Module, inputs: Mapping[str, Any], target: Target) -> list[Layer]:
    """The values between the kernels of a graph, compiled in the open `PassContext`, in order."""
    from tilewright.compile import compile_fused, graph_passes
    from tilewright.graph import run_passes

    fused = run_passes(module, graph_passes(target))
    taps, tapped = _tapped(fused)
    return _layers(taps, compile_fused(tapped, target).run(inputs))


class _Tap(NamedTuple):
    value: Value
    origin: str


def _tapped(module: Module) -> tuple[list[_Tap], Module]:
    """The values that `main` computes, and a module that outputs all of them."""
    main = module.main
    taps = [_Tap(v, b.origin) for b in main.body for v in _tensors(b)]
    results = [tap.value for tap in taps]
    names = [f"tap{k}" for k in range(len(results))]
    whole = Function("main", main.params, main.body, results, names)
    others = [f for f in module.functions.values() if f.name != "main"]
    return taps, Module([whole, *others], module.data_types.values())


def _tensors(binding: Binding) -> list[Value]:
    return [v for v in binding.outputs if isinstance(v.type, TensorType)]


def _layers(taps: Sequence[_Tap], values: Sequence[Any]) -> list[Layer]:
    return [Layer(t.value.name, t.origin, v) for t, v in zip(taps, values, strict=True)]
