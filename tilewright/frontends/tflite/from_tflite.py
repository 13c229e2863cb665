"""From a model to a graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from tilewright.frontends.common.borders import given_array, named_output, require_names
from tilewright.frontends.common.damaged import trusting
from tilewright.frontends.common.input_shapes import GivenDim, Shape, input_shape
from tilewright.frontends.tflite.importer import Importer
from tilewright.frontends.tflite.load import LoadedModel, Signature, SubGraph, Tensor, load_model
from tilewright.frontends.tflite.missing import require_converters
from tilewright.frontends.tflite.states import State, find_states
from tilewright.frontends.tflite.tensors import element_type
from tilewright.graph import Array, Module, Value, passes
from tilewright.support.errors import UserError, nearest
from tilewright.support.faults import during

_WHAT: Final = "the TFLite model"


def from_tflite(
    source: Any,
    shapes: Mapping[str, Shape] | None = None,
    values: Mapping[str, Any] | None = None,
    *,
    signature: str | None = None,
) -> Module:
    """The graph of a TFLite model: a path or bytes.

    Inputs and outputs have the names of the signature, or of their tensors where there is none.
    Variables that keep a state from one run to the next are inputs and outputs after the others:
    `first_states` gives their initial values. `signature` chooses one of several; `shapes` and
    `values` are as for `from_onnx`.
    """
    with trusting(_WHAT):
        passes.require_shapes(shapes or {})
        model = load_model(source)
        with during("front end", "TFLite"):
            return _imported(model, _entry(model, signature), shapes or {}, values or {})


def input_names(source: Any) -> list[str]:
    """The names of the inputs of a model, in order."""
    with trusting(_WHAT):
        entry = _entry(load_model(source), None)
        return [*entry.inputs, *(s.name for s in entry.states)]


def first_states(source: Any, *, signature: str | None = None) -> dict[str, Array]:
    """The initial values of a model's variables, by the names of their inputs."""
    with trusting(_WHAT):
        return {s.name: s.first for s in _entry(load_model(source), signature).states}


class _Entry:
    """A subgraph that is run, with the names of its inputs and outputs."""

    def __init__(self, model: LoadedModel, number: int, signature: Signature | None) -> None:
        self.number, self.graph = number, model.subgraphs[number]
        taken: set[str] = set()
        given = signature.inputs if signature else {}
        self.inputs = _names(self.graph, self.graph.inputs, given, taken)
        self.states: list[State] = find_states(model, number, taken)
        given = signature.outputs if signature else {}
        self.outputs = _names(self.graph, self.graph.outputs, given, set())


def _entry(model: LoadedModel, key: str | None) -> _Entry:
    if key is None:
        first = next((s for s in model.signatures if s.subgraph == 0), None)
        return _Entry(model, 0, first)
    keys = {s.key: s for s in model.signatures}
    if key not in keys:
        raise UserError(f"the model has no signature {key}", remedy=nearest(key, keys))
    return _Entry(model, keys[key].subgraph, keys[key])


def _names(
    graph: SubGraph, numbers: Sequence[int], given: Mapping[int, str], taken: set[str]
) -> list[str]:
    """A unique name for each of these tensors."""
    return [unique_name(given.get(n) or graph.tensors[n].name or f"x{n}", taken) for n in numbers]


def unique_name(wanted: str, taken: set[str]) -> str:
    """A name that is not taken yet; it is taken afterwards."""
    name, k = wanted, 1
    while name in taken:
        k += 1
        name = f"{wanted}_{k}"
    taken.add(name)
    return name


def _imported(
    model: LoadedModel, entry: _Entry, shapes: Mapping[str, Shape], values: Mapping[str, Any]
) -> Module:
    require_converters(model)
    names = [*entry.inputs, *(s.name for s in entry.states)]
    require_names("shapes", shapes, names)
    require_names("values", values, names)
    importer = Importer(model)
    tensors = [entry.graph.tensors[n] for n in entry.graph.inputs]
    inputs = [
        _input(importer, name, tensor, shapes.get(name), values.get(name))
        for name, tensor in zip(entry.inputs, tensors, strict=True)
    ]
    for state in entry.states:
        shape, given = shapes.get(state.name), values.get(state.name)
        importer.variables[state.variable] = _input(
            importer, state.name, state.tensor, shape, given
        )
    results = importer.subgraph(entry.number, inputs)
    taken = {*inputs, *importer.variables.values()}
    for name, value in zip(entry.outputs, results, strict=True):
        result = named_output(importer.builder, name, value, taken)
        importer.builder.output(result, names=[name])
        taken.add(result)
    for state in entry.states:
        importer.builder.output(importer.variables[state.variable], names=[state.name])
    return importer.builder.build()


def _input(importer: Importer, name: str, tensor: Tensor, shape: Shape | None, given: Any) -> Value:
    declared: list[GivenDim] | None = None if tensor.shape is None else [*tensor.shape]
    extents = input_shape(name, declared, shape, importer.builder)
    value = importer.builder.input(name, element_type(tensor.type, f"input {name}"), extents)
    array = None if given is None else given_array(value, np.asarray(given))
    importer.structure.add_input(value, name, array)
    importer.keep_name(value)
    return value
