"""From a symbol and its parameters to a graph."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final

from tilewright.frontends.common.borders import add_output, require_names
from tilewright.frontends.common.converting import as_list, converting
from tilewright.frontends.common.damaged import trusting
from tilewright.frontends.common.files import content_of, text_of
from tilewright.frontends.common.input_shapes import (
    Shape,
    input_dims,
    merged_shape,
)
from tilewright.frontends.common.missing import refuse_missing
from tilewright.frontends.common.structure import UnspecialisedError
from tilewright.frontends.mxnet.attributes import Attributes
from tilewright.frontends.mxnet.node import Node
from tilewright.frontends.mxnet.params import read_params
from tilewright.frontends.mxnet.symbol import VARIABLE, Symbol, SymbolNode, parse_symbol
from tilewright.frontends.mxnet.table import TABLE
from tilewright.graph import Array, Builder, Module, Value, passes
from tilewright.support.errors import UserError

_WHAT: Final = "the MXNet network"
_REMEDY: Final = "check that symbol and parameters belong together and are complete"
#: Losses, whose second operand, a label, is only needed in training.
_LOSSES: Final = frozenset(
    "SoftmaxOutput Softmax LinearRegressionOutput LogisticRegressionOutput "
    "MAERegressionOutput SVMOutput".split()
)
_MOST_LEVELS: Final = 32
#: Most nodes: bodies of loops are converted for each use.
_MOST_NODES: Final = 200_000


def from_mxnet(
    symbol: Any, params: Any = None, shapes: Mapping[str, Shape] | None = None
) -> Module:
    """The graph of an MXNet network: a symbol in JSON and its parameters, each a path or bytes.

    Inputs are the variables without parameters, except labels. Symbols seldom have their shapes:
    `shapes` must, or `UnspecialisedError` names those that are missing. Outputs are called as MXNet
    calls them: the name of the node and `_output`.
    """
    with trusting(_WHAT, _REMEDY):
        passes.require_shapes(shapes or {})
        graph = _symbol(symbol)
        _require_converters(graph)
        arrays = {} if params is None else read_params(content_of(params, "the parameters"))
        return Importer(graph, arrays).converted(shapes or {})


def input_names(symbol: Any, params: Any) -> list[str]:
    """The names of the inputs of a network, in order."""
    with trusting(_WHAT, _REMEDY):
        graph = _symbol(symbol)
        arrays = {} if params is None else read_params(content_of(params, "the parameters"))
        return [n.name for n in _inputs(graph, arrays)]


def _symbol(symbol: Any) -> Symbol:
    name = str(symbol) if isinstance(symbol, str) else "the symbol"
    return parse_symbol(text_of(symbol, "the symbol"), name)


def _require_converters(graph: Symbol) -> None:
    missing: dict[str, list[str]] = defaultdict(list)
    pending = [graph]
    while pending:
        current = pending.pop()
        for k in sorted(_needed(current)):
            node = current.nodes[k]
            if node.op != VARIABLE and TABLE.find("", node.op) is None:
                missing[node.op].append(node.name)
            pending += node.subgraphs
    refuse_missing(_WHAT, missing)


def _needed(graph: Symbol) -> set[int]:
    """The nodes that outputs depend on; labels are not among them."""
    found, pending = set[int](), [k for k, _ in graph.heads]
    while pending:
        current = pending.pop()
        if current in found:
            continue
        found.add(current)
        pending += [k for k, _ in _operands(graph.nodes[current])]
    return found


def _operands(node: SymbolNode) -> list[tuple[int, int]]:
    return node.inputs[:1] if node.op in _LOSSES else node.inputs


def _inputs(graph: Symbol, arrays: Mapping[str, Array]) -> list[SymbolNode]:
    needed = _needed(graph)
    variables = [graph.nodes[k] for k in graph.variables if k in needed]
    found = [n for n in variables if n.name not in arrays]
    if len({n.name for n in found}) != len(found):
        raise UserError(f"{_WHAT} has two inputs of one name")
    return found


class Importer:
    """Converts one network."""

    def __init__(self, graph: Symbol, arrays: Mapping[str, Array]) -> None:
        self.builder = Builder("main")
        self._graph, self._arrays = graph, arrays
        self._constants: dict[str, Value] = {}
        #: Values by node, for each graph that is being converted.
        self._scopes: list[dict[int, list[Any]]] = []
        self._named: set[Value] = set()
        self._count = 0

    def converted(self, shapes: Mapping[str, Shape]) -> Module:
        inputs = _inputs(self._graph, self._arrays)
        require_names("shapes", shapes, [n.name for n in inputs])
        given = {n.name: _shape(n, shapes.get(n.name)) for n in inputs}
        unknown = [name for name, shape in given.items() if shape is None]
        if unknown:
            raise UnspecialisedError(
                f"{_WHAT} does not declare the shapes of {', '.join(unknown)}", shapes=unknown
            )
        values = {n.name: self._input(n, given[n.name] or []) for n in inputs}
        taken = set(values.values())
        self._named |= taken
        results = self._run(self._graph, values)
        for (k, output), value in zip(self._graph.heads, results, strict=True):
            add_output(self.builder, self._output_name(k, output), value, taken)
        return self.builder.build()

    def _input(self, node: SymbolNode, shape: Shape) -> Value:
        dtype = Node(self, node, []).dtype("__dtype__", "float32")
        return self.builder.input(node.name, dtype, input_dims(node.name, shape, self.builder))

    def _output_name(self, index: int, output: int) -> str:
        node = self._graph.nodes[index]
        if node.op == VARIABLE:
            return node.name
        several = len({o for k, o in self._graph.heads if k == index}) > 1
        return f"{node.name}_output{output if several else ''}"

    # ---- graphs ---------------------------------------------------------------------------------

    def _run(self, graph: Symbol, inputs: Mapping[str, Value]) -> list[Value]:
        """The values of a graph's outputs; its variables are inputs or parameters."""
        scope: dict[int, list[Any]] = {}
        self._scopes.append(scope)
        if len(self._scopes) > _MOST_LEVELS:
            raise UserError(f"graphs are nested more than {_MOST_LEVELS} deep")
        for k in sorted(_needed(graph)):
            node = graph.nodes[k]
            if node.op == VARIABLE:
                scope[k] = [inputs[node.name] if node.name in inputs else self.parameter(node.name)]
                continue
            self._count += 1
            if self._count > _MOST_NODES:
                raise UserError(f"{_WHAT} has more than {_MOST_NODES} nodes")
            with converting(self.builder, "node", str(node), _REMEDY):
                scope[k] = self._convert(node)
        results = [self.value(*head) for head in graph.heads]
        self._scopes.pop()
        return results

    def inner(self, graph: Symbol, values: Sequence[Value]) -> list[Value]:
        """The outputs of a graph inside a node for these values of its variables."""
        if len(values) != len(graph.variables):
            raise UserError(f"a graph of {len(graph.variables)} variables gets {len(values)}")
        names = [graph.nodes[k].name for k in graph.variables]
        origin = self.builder.origin
        results = self._run(graph, dict(zip(names, values, strict=True)))
        self.builder.origin = origin
        return results

    def _convert(self, node: SymbolNode) -> list[Any]:
        convert = TABLE.find("", node.op)
        assert convert is not None
        results = as_list(convert(Node(self, node, _operands(node))))
        for k, value in enumerate(results):
            if value is not None and value.constant is None and value not in self._named:
                value.name = f"{node.name}_output{k or ''}"
                self._named.add(value)
        return results

    # ---- values ---------------------------------------------------------------------------------

    def value(self, node: int, output: int) -> Value:
        found = self._scopes[-1].get(node, [])
        if output >= len(found) or found[output] is None:
            raise UserError(f"output {output} of node {node} is not supported")
        return found[output]

    def parameter(self, name: str) -> Value:
        """A parameter as a constant."""
        if name not in self._constants:
            if name not in self._arrays:
                raise UserError(
                    f"there is no parameter {name[:60]}",
                    remedy="pass params='….params', the file that belongs to the symbol",
                )
            self._constants[name] = self.builder.constant(self._arrays[name], None, name)
        return self._constants[name]


def _shape(node: SymbolNode, given: Shape | None) -> list[Any] | None:
    """The shape of an input; zeros in what a symbol declares stand for any size."""
    declared: list[Any] | None = Attributes(node.attrs).integers("__shape__", None)
    declared = declared and [None if d <= 0 else d for d in declared]
    if given is None and (not declared or None in declared):
        return None
    return merged_shape(node.name, declared or None, given, fixed=False)
