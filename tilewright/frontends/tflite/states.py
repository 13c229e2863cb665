"""Variables that keep a state from one run to the next: inputs and outputs of the graph."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tilewright.frontends.tflite import schema
from tilewright.frontends.tflite.load import LoadedModel, Operator, SubGraph, Tensor
from tilewright.frontends.tflite.tensors import element_type
from tilewright.graph import Array
from tilewright.support.errors import UserError


class State(NamedTuple):
    """A variable as an input and an output."""

    name: str
    #: Its name in operators.
    variable: str
    #: Its type, as of a tensor that is read from it or assigned to it.
    tensor: Tensor
    first: Array


def find_states(model: LoadedModel, number: int, taken: set[str]) -> list[State]:
    """The variables of a subgraph: tensors marked as such, and those of handles."""
    graph = model.subgraphs[number]
    found = {t.name: (t, None) for o in graph.operators for t in _variables(graph, o)}
    found |= {n: (t, _assigned(model, graph, n)) for n, t in _behind_handles(graph).items()}
    states: list[State] = []
    for variable, (tensor, first) in found.items():
        name = variable or "state"
        while name in taken:
            name += "_state"
        taken.add(name)
        states.append(State(name, variable, tensor, _zeros(tensor) if first is None else first))
    return states


def variable_name(operator: Operator) -> str:
    """The name of a VAR_HANDLE's variable."""
    fields = schema.options_of("VAR_HANDLE")
    table = operator.options
    parts = ["" if table is None else table.text(fields[f].number) for f in fields]
    return "/".join(p for p in parts if p)


def _variables(graph: SubGraph, operator: Operator) -> list[Tensor]:
    tensors = [graph.tensors[n] for n in operator.inputs if n >= 0]
    return [t for t in tensors if t.is_variable]


def _handles(graph: SubGraph) -> dict[int, str]:
    makers = [o for o in graph.operators if o.name == "VAR_HANDLE"]
    return {o.outputs[0]: variable_name(o) for o in makers if o.outputs}


def _behind_handles(graph: SubGraph) -> dict[str, Tensor]:
    """The variables that a subgraph reads or assigns, in order."""
    handles = _handles(graph)
    found: dict[str, Tensor] = {}
    for operator in graph.operators:
        held = _held(graph, operator)
        if held is not None and operator.inputs[0] in handles:
            found.setdefault(handles[operator.inputs[0]], held)
    return found


def _held(graph: SubGraph, operator: Operator) -> Tensor | None:
    """A tensor of a variable's type, from an operator that uses it."""
    if operator.name == "READ_VARIABLE" and operator.inputs and operator.outputs:
        return graph.tensors[operator.outputs[0]]
    if operator.name == "ASSIGN_VARIABLE" and len(operator.inputs) > 1 and operator.inputs[1] >= 0:
        return graph.tensors[operator.inputs[1]]
    return None


def _assigned(model: LoadedModel, graph: SubGraph, variable: str) -> Array | None:
    """What the subgraph that is run once, before all others, assigns to a variable."""
    fields = schema.options_of("CALL_ONCE")
    for call in graph.operators:
        if call.name != "CALL_ONCE" or call.options is None:
            continue
        number: int = call.options.number(fields["subgraph"].number, "i")
        if not 0 <= number < len(model.subgraphs):
            raise UserError(f"the model has no subgraph {number}")
        once = model.subgraphs[number]
        handles = _handles(once)
        for operator in once.operators:
            held = _held(once, operator)
            if held is not None and handles.get(operator.inputs[0]) == variable:
                return held.constant
    return None


def _zeros(tensor: Tensor) -> Array:
    shape = [1 if d is None else d for d in tensor.shape or ()]
    if np.prod(shape, dtype=float) > 1 << 28:
        raise UserError(f"the variable {tensor.name} has the shape {shape}")
    zero = 0 if tensor.quantization is None else tensor.quantization.zero
    return np.full(shape, zero, element_type(tensor.type, tensor.name).numpy)
