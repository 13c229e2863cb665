"""From a model to a graph."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from tilewright.frontends.common.borders import given_array, named_output, require_names
from tilewright.frontends.common.damaged import trusting
from tilewright.frontends.common.input_shapes import GivenDim, Shape, input_shape
from tilewright.frontends.common.missing import refuse_missing
from tilewright.frontends.common.structure import UnspecialisedError
from tilewright.frontends.keras.config import Config, LayerSpec, as_dict, as_list, layer_spec
from tilewright.frontends.keras.importer import Importer
from tilewright.frontends.keras.layer import tensors
from tilewright.frontends.keras.load import KerasModel, load_model
from tilewright.frontends.keras.structure import MODELS, layers_of, model_spec, references
from tilewright.frontends.keras.table import TABLE
from tilewright.frontends.sources import Source
from tilewright.graph import Module, TensorType, Value, dtype_of, passes
from tilewright.support.errors import UserError
from tilewright.support.faults import during

_DEEP: Final = 32
#: What can be done about layers that will not be supported.
_HINTS: Final = {
    "Lambda": "it holds Python code, which is not run; write it with layers or keras.ops",
}


def from_keras(
    source: Any, shapes: Mapping[str, Shape] | None = None, values: Mapping[str, Any] | None = None
) -> Module:
    """The graph of a Keras model: the path of a `.keras` or an `.h5` file, or its bytes.

    `shapes` refines the shapes of inputs: numbers, names of symbolic dimensions, None for any size.
    `values` are inputs that the program is built for.
    """
    found = source if isinstance(source, Source) else Source(source)
    with trusting(found.name):
        passes.require_shapes(shapes or {})
        model = load_model(found)
        with during("front end", "Keras"), trusting(found.name):
            return _converted(model, shapes or {}, values or {})


def input_names(source: Source) -> list[str]:
    """The names of the inputs of a model, in order."""
    return [name for name, _ in _inputs(layer_spec(load_model(source).config))]


def _converted(model: KerasModel, shapes: Mapping[str, Shape], values: Mapping[str, Any]) -> Module:
    spec = layer_spec(model.config)
    _require_model(spec, model.name)
    _require_converters(spec, model.name)
    inputs = _inputs(spec)
    for what, given in (("shapes", shapes), ("values", values)):
        require_names(what, given, [name for name, _ in inputs])
    importer = Importer(is_old=model.version.startswith("2"))
    importer.collect(spec, model.weights)
    params = [_input(importer, *i, shapes, values) for i in inputs]
    found = importer.model(spec, model.weights, params)
    taken: set[Value | None] = set(params)
    for name, value in zip(_output_names(spec), tensors(found), strict=True):
        result = named_output(importer.builder, name, value, taken)
        importer.builder.output(result)
        taken.add(result)
    return importer.builder.build()


def _require_model(spec: LayerSpec, name: str) -> None:
    if spec.kind not in MODELS or "layers" not in spec.config:
        raise UserError(
            f"{name} is a model of the class {spec.kind}",
            reason="its layers are called by Python code, which is not in the file",
            remedy="build it with keras.Sequential or the functional API, or export it: "
            "model.export('folder') writes a SavedModel",
        )


# ---- inputs and outputs -------------------------------------------------------------------------


def _inputs(spec: LayerSpec) -> list[tuple[str, LayerSpec]]:
    """The names of the inputs and the layers that declare their types."""
    model = model_spec(spec)
    if spec.kind == "Sequential":
        return [_sequential_input(spec, layer_spec(spec.config.raw("layers")[0]))]
    by_name = {s.name: s for s, _ in model.layers}
    return [(r.layer, by_name[r.layer]) for r in references(model.inputs)]


def _sequential_input(spec: LayerSpec, first: LayerSpec) -> tuple[str, LayerSpec]:
    if first.kind == "InputLayer":
        return first.name, first
    if first.kind in MODELS and first.kind != "Sequential":
        found = _inputs(first)
        if len(found) == 1:
            return f"{first.name}_input", found[0][1]
    if first.kind == "Sequential" and not _tells_shape(first.config.values):
        return f"{first.name}_input", _inputs(first)[0][1]
    if _tells_shape(first.config.values):
        return f"{first.name}_input", first
    built = spec.config.raw("build_input_shape") or _build_shape(spec) or _build_shape(first)
    config = {"batch_shape": built, "dtype": _input_type(first)}
    return f"{first.name}_input", layer_spec({"class_name": "InputLayer", "config": config})


def _tells_shape(config: Mapping[str, Any]) -> bool:
    return bool(config.get("batch_input_shape") or config.get("batch_shape"))


def _build_shape(spec: LayerSpec) -> Any:
    return (as_dict(spec.entry.get("build_config")) or {}).get("input_shape")


def _input_type(first: LayerSpec) -> str:
    return "int32" if first.kind == "Embedding" else "float32"


def _input(
    importer: Importer,
    name: str,
    spec: LayerSpec,
    shapes: Mapping[str, Shape],
    values: Mapping[str, Any],
) -> Value:
    declared = _declared_shape(spec)
    given = shapes.get(name)
    if declared is None and given is None:
        raise UnspecialisedError(
            f"the model does not declare the shape of input {name}",
            reason="it must be known before the program can be built",
            shapes=[name],
        )
    dtype = spec.config.raw("dtype", "float32")
    inner = as_dict((as_dict(dtype) or {}).get("config")) or {}
    plain = str(inner.get("name", dtype)).replace("mixed_float16", "float32")
    shape = input_shape(name, declared, given, importer.builder)
    value = importer.builder.input(name, TensorType(dtype_of(plain), shape))
    given_value = given_array(value, values[name]) if name in values else None
    importer.structure.add_input(value, name, given_value)
    return value


def _declared_shape(spec: LayerSpec) -> list[GivenDim] | None:
    config: Config = spec.config
    shape = config.raw("batch_shape") or config.raw("batch_input_shape")
    if shape is None:
        return None
    dims = as_list(shape)
    if dims is None or not all(d is None or isinstance(d, int) for d in dims):
        raise UserError(f"{spec.text} has the shape {str(shape)[:80]}")
    # All inputs have one batch.
    return ["batch" if k == 0 and d is None else d for k, d in enumerate(dims)]


def _output_names(spec: LayerSpec) -> list[str]:
    """Outputs have the names of the layers that compute them."""
    if spec.kind == "Sequential":
        last = layer_spec(spec.config.raw("layers", [])[-1])
        names = [last.name] * _result_count(last)
    else:
        names = [r.layer for r in references(model_spec(spec).outputs)]
    seen: dict[str, int] = {}
    unique: list[str] = []
    for name in names:
        count = seen[name] = seen.get(name, -1) + 1
        unique.append(f"{name}_{count}" if count else name)
    return unique


def _result_count(spec: LayerSpec) -> int:
    if spec.kind in MODELS and spec.kind != "Sequential":
        return len(list(references(model_spec(spec).outputs)))
    return 1


# ---- layers that nothing converts ---------------------------------------------------------------


def _require_converters(spec: LayerSpec, name: str) -> None:
    missing: dict[str, list[str]] = {}
    for layer in _all_layers(spec):
        if layer.kind not in (*MODELS, "InputLayer") and not TABLE.find(layer.domain, layer.kind):
            missing.setdefault(layer.kind, []).append(layer.text)
    remedy = "register converters: tilewright.frontends.keras.table.TABLE.register(name, convert)"
    refuse_missing(name, missing, hints=_HINTS, remedy=remedy)


def _all_layers(spec: LayerSpec, depth: int = 0) -> Iterator[LayerSpec]:
    """All layers, those inside of models and wrappers too."""
    if depth > _DEEP:
        raise UserError("models are nested too deeply")
    layers = layers_of(spec) if spec.kind in MODELS else []
    wrapped = spec.config.raw("layer")
    for layer in [*layers, *([layer_spec(wrapped)] if wrapped else [])]:
        yield layer
        yield from _all_layers(layer, depth + 1)
