"""From a model to a graph."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tilewright.frontends.common.borders import given_array, named_output, require_names
from tilewright.frontends.common.damaged import trusting
from tilewright.frontends.common.input_shapes import Shape
from tilewright.frontends.onnx.failed import FailedNode
from tilewright.frontends.onnx.importer import Importer, Scope
from tilewright.frontends.onnx.input_types import input_type
from tilewright.frontends.onnx.load import LoadedModel, load_model
from tilewright.frontends.onnx.missing import require_converters
from tilewright.graph import Module, passes
from tilewright.support.faults import during

_WHAT: Final = "the ONNX model"
_REMEDY: Final = "check it with onnx.checker.check_model(model, full_check=True)"


def from_onnx(
    source: Any,
    shapes: Mapping[str, Shape] | None = None,
    values: Mapping[str, Any] | None = None,
    *,
    mapped: bool = False,
) -> Module:
    """The graph of an ONNX model: a path, bytes or an `onnx.ModelProto`.

    `shapes` refines the shapes of inputs: numbers, names of symbolic dimensions, None for any size;
    for sequences they are those of the elements. `values` are inputs that the program is built for:
    where its structure (axes, ranks, conditions) depends on them, it holds for these values alone.
    What must be given and is not raises `UnspecialisedError`, which names the inputs. If `mapped`,
    large weights are looked at where they are in the file, which must not change meanwhile.
    """
    with trusting(_WHAT, _REMEDY):
        return _converted(source, shapes or {}, values or {}, mapped)


def _converted(
    source: Any, shapes: Mapping[str, Shape], values: Mapping[str, Any], mapped: bool
) -> Module:
    passes.require_shapes(shapes)
    model = load_model(source, mapped=mapped)
    importer = Importer(model)
    scope = Scope(model.versions)
    with during("front end", "ONNX", FailedNode(model, scope.find)), trusting(_WHAT, _REMEDY):
        return _imported(importer, scope, shapes, values)


def _imported(
    importer: Importer, scope: Scope, shapes: Mapping[str, Shape], values: Mapping[str, Any]
) -> Module:
    model = importer.model
    require_converters(model, importer.functions)
    names = [i.name for i in _inputs(model)]
    require_names("shapes", shapes, names)
    require_names("values", values, names)
    _add_inputs(importer, scope, shapes, values)
    results = importer.graph(model.proto.graph, scope)
    # Inputs keep their names, and so does what is an output already.
    taken = {scope.find(i.name) for i in _inputs(model)}
    for output, value in zip(model.proto.graph.output, results, strict=True):
        result = named_output(importer.builder, output.name, value, taken)
        importer.builder.output(result)
        taken.add(result)
    return importer.builder.build()


def input_names(source: Any) -> list[str]:
    """The names of the inputs of a model, in order."""
    return [i.name for i in _inputs(load_model(source, mapped=True))]


def _add_inputs(
    importer: Importer, scope: Scope, shapes: Mapping[str, Shape], values: Mapping[str, Any]
) -> None:
    for proto in _inputs(importer.model):
        type_ = input_type(proto.name, proto.type, importer.builder, shapes.get(proto.name))
        value = importer.builder.input(proto.name, type_)
        given = given_array(value, values[proto.name]) if proto.name in values else None
        importer.structure.add_input(value, proto.name, given)
        importer.named.add(value)
        scope.define(proto.name, value)


def _inputs(model: LoadedModel) -> list[Any]:
    """The inputs of the model, without those that have a constant: they are its weights."""
    graph = model.proto.graph
    constants = {t.name for t in graph.initializer}
    constants |= {t.values.name for t in graph.sparse_initializer}
    return [i for i in graph.input if i.name not in constants]
