"""Converts the calls of a model's layers and builds the graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from tilewright.frontends.common.located import locating
from tilewright.frontends.common.operands import Recorder
from tilewright.frontends.common.structure import Structure
from tilewright.frontends.keras.config import LayerSpec, as_dict, as_list
from tilewright.frontends.keras.layer import Layer, tensors
from tilewright.frontends.keras.structure import (
    MODELS,
    LayerCall,
    Reference,
    model_spec,
    references,
)
from tilewright.frontends.keras.table import TABLE
from tilewright.frontends.keras.weights import NoWeights, Weights
from tilewright.graph import Builder, Value
from tilewright.support.errors import UserError

_MAX_DEPTH: Final = 32
_MAX_CALLS: Final = 100_000
#: Layers whose results keep the mask of their first input.
_KEEP_MASKS: Final = frozenset(
    "Activation ActivityRegularization AlphaDropout BatchNormalization Dense Dropout ELU "
    "GaussianDropout GaussianNoise GroupNormalization Identity LayerNormalization LeakyReLU PReLU "
    "ReLU RMSNormalization Softmax SpatialDropout1D SpatialDropout2D SpatialDropout3D "
    "ThresholdedReLU TimeDistributed UnitNormalization EinsumDense".split()
)


class Importer:
    """Converts one model."""

    def __init__(self, is_old: bool = False) -> None:
        #: Whether Keras 2 wrote the model.
        self.is_old = is_old
        self.structure = Structure()
        self.builder: Builder = Recorder(self.structure)
        #: The masks of values, where they have one.
        self.masks: dict[Value, Value] = {}
        self._shared: dict[str, Weights] = {}
        self._depth = self._calls = 0

    def model(self, spec: LayerSpec, stored: Weights, inputs: Sequence[Value]) -> Any:
        """The outputs of a model for these inputs."""
        if self._depth >= _MAX_DEPTH:
            raise UserError("models are nested too deeply")
        self._depth += 1
        try:
            return self._model(spec, stored, inputs)
        finally:
            self._depth -= 1

    def _model(self, spec: LayerSpec, stored: Weights, inputs: Sequence[Value]) -> Any:
        model = model_spec(spec)
        own = {s.name: self._stored(s, key, stored) for s, key in model.layers}
        sources = list(references(model.inputs))
        if len(sources) != len(inputs):
            raise UserError(
                f"{spec.text} has {len(sources)} inputs", reason=f"it gets {len(inputs)}"
            )
        results: dict[tuple[str, int], list[Value]] = {
            (r.layer, r.call): [v] for r, v in zip(sources, inputs, strict=True)
        }
        for call in model.calls:
            self._run(call, own[call.spec.name], results)
        return _resolved(model.outputs, results)

    def _stored(self, spec: LayerSpec, key: str, outer: Weights) -> Weights:
        """The weights of a layer; those of one that several models share are stored once."""
        found = outer.layer(spec.name, key)
        if isinstance(found, NoWeights):
            return self._shared.get(spec.name, found)
        return self._shared.setdefault(spec.name, found)

    def collect(self, spec: LayerSpec, stored: Weights, depth: int = 0) -> None:
        """Find the weights of all layers, in the order in which files store them."""
        if depth >= _MAX_DEPTH:
            raise UserError("models are nested too deeply")
        for layer, key in model_spec(spec).layers:
            found = self._stored(layer, key, stored)
            if layer.kind in MODELS:
                self.collect(layer, found, depth + 1)

    def _run(
        self, call: LayerCall, stored: Weights, results: dict[tuple[str, int], list[Value]]
    ) -> None:
        args = [_resolved(a, results) for a in call.args]
        kwargs = {k: _resolved(v, results) for k, v in call.kwargs.items()}
        found = self.call(call.spec, stored, args, kwargs)
        results[call.spec.name, call.index] = list(tensors(found))

    def call(
        self, spec: LayerSpec, stored: Weights, args: Sequence[Any], kwargs: dict[str, Any]
    ) -> Any:
        """The results of one call of a layer."""
        self._calls += 1
        if self._calls > _MAX_CALLS:
            raise UserError(f"the model calls more than {_MAX_CALLS} layers")
        if spec.kind in MODELS:
            return self.model(spec, stored, list(tensors([args, kwargs])))
        origin = self.builder.origin = spec.text
        convert = TABLE.find(spec.domain, spec.kind)
        if convert is None:
            raise UserError(f"there is no converter for {spec.text}")
        layer = Layer(self, spec, stored, args, kwargs)
        with locating(origin):
            found = convert(layer)
        self._hand_on_mask(layer, found)
        return found

    def _hand_on_mask(self, layer: Layer, found: Any) -> None:
        if layer.kind not in _KEEP_MASKS or not isinstance(found, Value):
            return
        mask = layer.mask
        if mask is not None and found not in self.masks:
            self.masks[found] = mask


def _resolved(value: Any, results: dict[tuple[str, int], list[Value]]) -> Any:
    """Arguments with references replaced by tensors."""
    if isinstance(value, Reference):
        found = results.get((value.layer, value.call))
        if found is None or not 0 <= value.result < len(found):
            raise UserError(f"no layer gives result {value.result} of {value.layer}")
        return found[value.result]
    if (items := as_list(value)) is not None:
        return [_resolved(v, results) for v in items]
    if (entries := as_dict(value)) is not None:
        return {k: _resolved(v, results) for k, v in entries.items()}
    return value
