"""Wrappers of layers: bidirectional, time-distributed."""

from __future__ import annotations

from functools import reduce
from typing import Any, Final

from tilewright.frontends.keras.config import LayerSpec, layer_spec
from tilewright.frontends.keras.layer import Layer, tensors
from tilewright.frontends.keras.table import converts
from tilewright.graph import Value
from tilewright.support.errors import UserError

_MERGES: Final = {"sum": "add", "ave": "add", "mul": "mul"}


@converts("Bidirectional")
def bidirectional(n: Layer) -> Any:
    forward = layer_spec(n.config.raw("layer"))
    given = n.config.raw("backward_layer")
    backward = layer_spec(given) if given else _reversed(forward)
    states = list(tensors(n.argument(1, "initial_state"))) or list(n.inputs[1:])
    half = len(states) // 2
    kwargs = {"mask": n.mask}
    results: list[list[Value]] = []
    for spec, prefix, own in (
        (forward, "forward", states[:half]),
        (backward, "backward", states[half:]),
    ):
        stored = n.stored.child(f"{prefix}_layer", spec.name, f"{prefix}_{forward.name}")
        extra = {"initial_state": own} if own else {}
        results.append(list(tensors(n.call(spec, stored, [n[0]], {**kwargs, **extra}))))
    return _merged(n, forward, *results)


def _reversed(spec: LayerSpec) -> LayerSpec:
    """The layer in the other direction."""
    config = dict(spec.config.values)
    config["go_backwards"] = not config.get("go_backwards", False)
    config["name"] = f"backward_{str(config.get('name', '')).removeprefix('forward_')}"
    return layer_spec({"class_name": spec.kind, "config": config})


def _merged(n: Layer, spec: LayerSpec, forward: list[Value], backward: list[Value]) -> Any:
    b, mode = n.builder, n.config.raw("merge_mode")
    y, z = forward[0], backward[0]
    sequences = spec.config.flag("return_sequences")
    if sequences:
        z = b.flip(z, axes=[1])
    states = [*forward[1:], *backward[1:]] if spec.config.flag("return_state") else []
    if mode is None:
        return [y, z, *states]
    if mode == "concat":
        result = b.concat(y, z, axis=-1)
    elif mode in _MERGES:
        result = reduce(lambda p, q: b.emit(_MERGES[mode], p, q), [y, z])
        result = result * 0.5 if mode == "ave" else result
    else:
        raise UserError(f"the merge_mode is {mode!r}")
    result = n.masked(result, n.mask) if sequences else result
    return [result, *states] if states else result


@converts("TimeDistributed")
def time_distributed(n: Layer) -> Any:
    """Batch and time are one axis for the inner layer."""
    x, b = n[0], n.builder
    if x.ndim < 3:
        raise UserError(f"{x} has no time")
    spec = layer_spec(n.config.raw("layer"))
    merged = b.reshape(x, shape=[x.shape[0] * x.shape[1], *x.shape[2:]])
    found = n.call(spec, n.stored.child("layer", spec.name), [merged], {})
    parts = [b.reshape(v, shape=[*x.shape[:2], *v.shape[1:]]) for v in tensors(found)]
    return parts[0] if len(parts) == 1 else parts
