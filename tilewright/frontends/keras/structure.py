"""How the layers of a model call each other, as Keras 2 and Keras 3 write it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import chain
from typing import Any, Final, NamedTuple
from weakref import WeakKeyDictionary

from tilewright.frontends.keras.config import LayerSpec, as_dict, as_list, layer_spec
from tilewright.support.errors import UserError

#: Classes that are models: they have layers of their own.
MODELS: Final = ("Functional", "Model", "Sequential")
_DEEP: Final = 32
#: What Keras 2 writes before constants.
_CONSTANT: Final = "_CONSTANT_VALUE"


class Reference(NamedTuple):
    """A result of a layer's call: the layer, the number of the call, and that of the result."""

    layer: str
    call: int
    result: int


@dataclass
class LayerCall:
    """One use of a layer; references in its arguments stand for tensors."""

    spec: LayerSpec
    index: int
    args: list[Any] = field(default_factory=list[Any])
    kwargs: dict[str, Any] = field(default_factory=dict[str, Any])

    @cached_property
    def taken(self) -> list[Reference]:
        """All results of other calls in the arguments."""
        return list(references([self.args, self.kwargs]))


@dataclass
class ModelSpec:
    """The layers of a model with their keys in weight files; its calls in a valid order."""

    layers: list[tuple[LayerSpec, str]]
    calls: list[LayerCall]
    inputs: Any
    outputs: Any


#: Structures and layers of models, cached while their specs are in use.
_KNOWN: Final[WeakKeyDictionary[LayerSpec, ModelSpec]] = WeakKeyDictionary()
_LAYERS: Final[WeakKeyDictionary[LayerSpec, list[LayerSpec]]] = WeakKeyDictionary()


def model_spec(spec: LayerSpec) -> ModelSpec:
    """The structure of a model."""
    found = _KNOWN.get(spec)
    if found is None:
        found = _KNOWN[spec] = _structure(spec)
    return found


def layers_of(spec: LayerSpec) -> list[LayerSpec]:
    """The descriptions of a model's layers."""
    found = _LAYERS.get(spec)
    if found is None:
        entries = as_list(spec.config.raw("layers")) or []
        found = _LAYERS[spec] = [layer_spec(e) for e in entries]
    return found


def _structure(spec: LayerSpec) -> ModelSpec:
    layers = layers_of(spec)
    if not layers:
        raise UserError(f"{spec.text} has no layers")
    if spec.kind == "Sequential":
        return _sequential(layers)
    return _functional(spec, layers)


def _sequential(layers: list[LayerSpec]) -> ModelSpec:
    inner = [s for s in layers if s.kind != "InputLayer"]
    calls: list[LayerCall] = []
    before = Reference("", 0, 0)
    for k, spec in enumerate(inner):
        calls.append(LayerCall(spec, k, [before]))
        before = Reference(spec.name, k, 0)
    return ModelSpec(_keyed(inner), calls, [Reference("", 0, 0)], before)


def _keyed(layers: Sequence[LayerSpec]) -> list[tuple[LayerSpec, str]]:
    """Layers with their numbered names in `.keras` files: `dense`, `dense_1`, …"""
    seen: dict[str, int] = {}
    keyed: list[tuple[LayerSpec, str]] = []
    for spec in layers:
        plain = _snake_case(spec.kind)
        count = seen.get(plain, 0)
        # Operations that are no layers have no weights, and are not counted.
        seen[plain] = count + (spec.domain == "")
        keyed.append((spec, f"{plain}_{count}" if count else plain))
    return keyed


@lru_cache(maxsize=4096)
def _snake_case(name: str) -> str:
    name = re.sub("(.)([A-Z][a-z]+)", r"\1_\2", re.sub(r"\W+", "", name))
    return re.sub("([a-z])([A-Z])", r"\1_\2", name).lower()


# ---- graphs of layers ---------------------------------------------------------------------------


def _functional(spec: LayerSpec, layers: list[LayerSpec]) -> ModelSpec:
    names = {s.name for s in layers}
    if len(names) != len(layers):
        raise UserError(f"{spec.text} has two layers of one name")
    calls = {s.name: _calls(s) for s in layers}
    outputs = _references(spec.config.raw("output_layers", []), names)
    inputs = _references(spec.config.raw("input_layers", []), names)
    found = [c for own in calls.values() for c in own]
    greatest_calls = dict.fromkeys(names, 0)
    for used in chain(references(outputs), *(c.taken for c in found)):
        greatest_calls[used.layer] = max(greatest_calls.get(used.layer, 0), used.call)
    for layer in layers:
        own, greatest = calls[layer.name], greatest_calls[layer.name]
        # For models that were called when they were created, that was their first call.
        if layer.kind in MODELS and greatest >= len(own) > 0:
            for call in own:
                call.index += greatest + 1 - len(own)
    return ModelSpec(_keyed(layers), _ordered(found), inputs, outputs)


def _calls(spec: LayerSpec) -> list[LayerCall]:
    nodes = as_list(spec.entry.get("inbound_nodes") or [])
    if nodes is None:
        raise UserError(f"{spec.text} has calls that are no list")
    return [_call(spec, k, node) for k, node in enumerate(nodes)]


def _call(spec: LayerSpec, index: int, node: Any) -> LayerCall:
    written = as_dict(node)
    if written is None:
        return _old_call(spec, index, node)
    args, kwargs = as_list(written.get("args") or []), as_dict(written.get("kwargs") or {})
    if args is None or kwargs is None:
        raise UserError(f"{spec.text} is called with {str(written)[:80]}")
    return LayerCall(spec, index, _new_style(args), _new_style(kwargs))


def _mapped(value: Any, function: Callable[[Any, int], Any], depth: int) -> Any:
    """A structure with a function applied to the members of lists and objects."""
    if depth > _DEEP:
        raise UserError("the arguments of a layer are nested too deeply")
    if (items := as_list(value)) is not None:
        return [function(v, depth + 1) for v in items]
    if (entries := as_dict(value)) is not None:
        return {k: function(v, depth + 1) for k, v in entries.items()}
    return value


def _new_style(value: Any, depth: int = 0) -> Any:
    """Arguments in the format of Keras 3."""
    entries = as_dict(value) or {}
    if entries.get("class_name") == "__keras_tensor__":
        history = (as_dict(entries.get("config")) or {}).get("keras_history")
        found = _reference(history)
        if found is None:
            raise UserError(f"a tensor comes from {str(history)[:80]}")
        return found
    return _mapped(value, _new_style, depth)


def _reference(value: Any) -> Reference | None:
    """[layer, call, result, …] as a reference; None if it is something else."""
    items = as_list(value) or []
    if len(items) < 3 or not isinstance(items[0], str) or items[0] == _CONSTANT:
        return None
    if not all(isinstance(v, int) and not isinstance(v, bool) for v in items[1:3]):
        return None
    return Reference(*items[:3])


def _old_call(spec: LayerSpec, index: int, node: Any) -> LayerCall:
    """A list of [layer, call, result, keyword arguments], or one of them alone."""
    entries = [node] if _reference(node) else as_list(node)
    if entries is None:
        entries = list((as_dict(node) or {}).values())
    rows = [as_list(e) or [] for e in entries]
    if not rows or any(len(r) < 3 for r in rows):
        raise UserError(f"{spec.text} is called with {str(node)[:80]}")
    kwargs: dict[str, Any] = {}
    for row in rows:
        kwargs |= (as_dict(row[3]) or {}) if len(row) > 3 else {}
    found = [_old_style(r[:3]) for r in rows]
    first = found[0] if len(found) == 1 else found
    return LayerCall(spec, index, [first], {k: _old_style(v) for k, v in kwargs.items()})


def _old_style(value: Any, depth: int = 0) -> Any:
    """Arguments in the format of Keras 2; constants are in the place of layers."""
    if (found := _reference(value)) is not None:
        return found
    items = as_list(value) or []
    if len(items) == 3 and items[0] == _CONSTANT:
        return items[2]
    return _mapped(value, _old_style, depth)


def _references(value: Any, names: set[str], depth: int = 0) -> Any:
    """Inputs or outputs of a model: references in lists and dictionaries."""
    found = _reference(value)
    if found is None:
        if as_list(value) is None and as_dict(value) is None:
            raise UserError(f"an input or output of a model is {str(value)[:80]}")
        return _mapped(value, lambda v, d: _references(v, names, d), depth)
    if found.layer not in names:
        raise UserError(f"the model has no layer {found.layer}")
    return found


def references(value: Any) -> Iterator[Reference]:
    """All references inside a structure."""
    pending = [value]
    while pending:
        current = pending.pop()
        if isinstance(current, Reference):
            yield current
        else:
            inner = as_list(current) or list((as_dict(current) or {}).values())
            pending += reversed(inner)


def _ordered(calls: list[LayerCall]) -> list[LayerCall]:
    """Calls, sorted so that each follows those whose results it uses."""
    by_key = {(c.spec.name, c.index): c for c in calls}
    waiting: dict[int, set[tuple[str, int]]] = {}
    users: dict[tuple[str, int], list[LayerCall]] = {}
    for call in calls:
        needed = {(r.layer, r.call) for r in call.taken}
        waiting[id(call)] = needed & by_key.keys()
        for key in waiting[id(call)]:
            users.setdefault(key, []).append(call)
    ready = [c for c in calls if not waiting[id(c)]]
    ordered: list[LayerCall] = []
    for call in ready:
        ordered.append(call)
        key = (call.spec.name, call.index)
        for user in users.get(key, ()):
            waiting[id(user)].discard(key)
            if not waiting[id(user)]:
                ready.append(user)
    if len(ordered) != len(calls):
        raise UserError("the layers of the model call each other in a circle")
    return ordered
