"""Converts the operators of a model and builds the graph: subgraphs, variables, tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from tilewright.frontends.common.converting import as_list
from tilewright.frontends.common.located import locating
from tilewright.frontends.common.operands import Recorder
from tilewright.frontends.common.structure import Structure
from tilewright.frontends.tflite.load import LoadedModel, Operator, SubGraph, Tensor
from tilewright.frontends.tflite.node import Node
from tilewright.frontends.tflite.table import find_converter
from tilewright.frontends.tflite.tensors import element_type
from tilewright.graph import STRING, Array, Builder, TensorType, Value
from tilewright.support.errors import UserError
from tilewright.support.faults import during

#: Subgraphs are converted again for each use: a small file may result in very many operators. More
#: than this, plus `_MAX_USES` times the number in the file, are refused.
_MAX_NODES: Final = 100_000
_MAX_USES: Final = 20
_MAX_DEPTH: Final = 64


class Scope:
    """The values of the tensors of one subgraph."""

    def __init__(self, graph: SubGraph) -> None:
        self.graph = graph
        self.values: dict[int, Value] = {}
        #: Names of the variables and tables of resource tensors.
        self.handles: dict[int, str] = {}


class Importer:
    """Converts one model."""

    def __init__(self, model: LoadedModel) -> None:
        self.model = model
        self.structure = Structure()
        self.builder: Builder = Recorder(self.structure)
        #: The current values of variables, by name.
        self.variables: dict[str, Value] = {}
        #: The keys and values of hash tables, by name.
        self.tables: dict[str, tuple[Array, Array]] = {}
        self._constants: dict[Tensor, Value] = {}
        self._named: set[Value] = set()
        self._nodes = self._depth = self._inside = 0
        total = sum(len(g.operators) for g in model.subgraphs)
        self._most_nodes = _MAX_NODES + _MAX_USES * total

    def assign(self, name: str, value: Value) -> None:
        """Let a variable have another value from here on."""
        if self._inside:
            raise UserError(
                f"the variable {name} is assigned inside of a branch or a loop",
                reason="what is inside cannot be seen after it",
            )
        self.variables[name] = value

    def keep_name(self, value: Value) -> None:
        """Let a value keep its name."""
        self._named.add(value)

    # ---- graphs ---------------------------------------------------------------------------------

    def subgraph(self, number: int, args: Sequence[Value | None]) -> list[Value | None]:
        """The results of a subgraph for these arguments."""
        graph = self.find_subgraph(number)
        if len(args) != len(graph.inputs):
            raise UserError(
                f"the subgraph {number} has {len(graph.inputs)} inputs",
                reason=f"it gets {len(args)}",
            )
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise UserError(f"subgraphs are nested more than {_MAX_DEPTH} deep")
        origin = self.builder.origin
        try:
            return self._converted(graph, args)
        finally:
            self._depth -= 1
            self.builder.origin = origin

    def body(self, number: int, args: Sequence[Value | None]) -> list[Value | None]:
        """The results of a subgraph inside a branch or a loop."""
        self._inside += 1
        try:
            return self.subgraph(number, args)
        finally:
            self._inside -= 1

    def find_subgraph(self, number: int) -> SubGraph:
        """A subgraph by its number."""
        if not 0 <= number < len(self.model.subgraphs):
            raise UserError(f"the model has no subgraph {number}")
        return self.model.subgraphs[number]

    def _converted(self, graph: SubGraph, args: Sequence[Value | None]) -> list[Value | None]:
        scope = Scope(graph)
        for number, arg in zip(graph.inputs, args, strict=True):
            if arg is not None:
                scope.values[number] = arg
        for k, operator in enumerate(graph.operators):
            self._nodes += 1
            if self._nodes > self._most_nodes:
                raise UserError(
                    f"the model has more than {self._most_nodes} operators",
                    reason="subgraphs are counted each time they are used",
                )
            text = node_text(graph, operator, k)
            with during("node", text), locating(text):
                self.builder.origin = text
                self._convert(operator, scope)
        return [self._find(n, scope) for n in graph.outputs]

    # ---- operators ------------------------------------------------------------------------------

    def _convert(self, operator: Operator, scope: Scope) -> None:
        converter = find_converter(operator.domain, operator.name, operator.version)
        if converter is None:
            raise UserError(f"there is no converter for {operator.name}")
        inputs = [None if n < 0 else self._operand(n, scope) for n in operator.inputs]
        results = as_list(converter(Node(self, operator, inputs, scope)))
        for number, value in zip(operator.outputs, results, strict=False):
            self._define(number, value, scope)

    def _operand(self, number: int, scope: Scope) -> Value | None:
        """The value of a tensor; a handle has none."""
        return None if number in scope.handles else self._find(number, scope)

    def _find(self, number: int, scope: Scope) -> Value | None:
        if number in scope.values:
            return scope.values[number]
        tensor = scope.graph.tensors[number]
        if tensor.is_variable:
            return self.variables.get(tensor.name)
        if tensor.type in ("resource", "variant"):
            return None
        return self._constant(tensor)

    def _constant(self, tensor: Tensor) -> Value:
        if tensor not in self._constants:
            array = tensor.constant
            if array is None and tensor.shape is not None and 0 in tensor.shape:
                array = _empty(tensor)
            if array is None:
                raise UserError(
                    f"no value for the tensor {tensor.name}",
                    reason="no operator, input or buffer gives it one",
                )
            dtype = element_type(tensor.type, tensor.name)
            self._constants[tensor] = self.builder.constant(array, dtype, tensor.name)
        return self._constants[tensor]

    def _define(self, number: int, value: Value | None, scope: Scope) -> None:
        if value is None:
            return
        tensor = scope.graph.tensors[number]
        _require_type(value, tensor)
        if value.constant is None and value not in self._named:
            value.name = tensor.name
            self._named.add(value)
        scope.values[number] = value


def node_text(graph: SubGraph, operator: Operator, number: int) -> str:
    """The name of a subgraph's operator in messages."""
    named = [graph.tensors[n].name for n in operator.outputs[:1]]
    return f"{operator.name} {number}" + (f" ({named[0]})" if named else "")


def _empty(tensor: Tensor) -> Any:
    import numpy as np

    dtype = element_type(tensor.type, tensor.name)
    return np.empty(
        [d or 0 for d in tensor.shape or ()], object if dtype is STRING else dtype.numpy
    )


def _require_type(value: Value, tensor: Tensor) -> None:
    """Refuse a result whose type is not that in the file."""
    declared = element_type(tensor.type, tensor.name)
    if isinstance(value.type, TensorType) and value.dtype is not declared:
        raise UserError(
            f"the tensor {tensor.name} is declared as {declared}",
            reason=f"the operator makes {value.dtype}",
        )
