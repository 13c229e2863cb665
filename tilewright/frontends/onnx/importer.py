"""Converts the nodes of a model and builds the graph: scopes, subgraphs, functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from tilewright.frontends.common.converting import as_list
from tilewright.frontends.common.located import locating
from tilewright.frontends.common.operands import Recorder
from tilewright.frontends.common.structure import Structure
from tilewright.frontends.onnx.attributes import Attributes
from tilewright.frontends.onnx.external import ExternalFiles
from tilewright.frontends.onnx.failed import FailedNode
from tilewright.frontends.onnx.functions import MAX_DEPTH, FunctionTable, standard_function
from tilewright.frontends.onnx.load import LoadedModel, plain_domain, read_versions
from tilewright.frontends.onnx.node import Node
from tilewright.frontends.onnx.order import node_text, ordered_nodes
from tilewright.frontends.onnx.table import find_converter
from tilewright.frontends.onnx.tensors import read_sparse, read_tensor
from tilewright.graph import Builder, Value
from tilewright.support.errors import UserError, nearest
from tilewright.support.faults import during

#: Functions and bodies of loops are converted again for each use: a small file may result in very
#: many nodes. More than this, plus `_MAX_USES` times the number in the file, are refused.
_MAX_NODES: Final = 100_000
_MAX_USES: Final = 20
#: The remedy for nodes whose operands do not fit.
_REMEDY: Final = "check the model with onnx.checker.check_model(model, full_check=True)"


class Scope:
    """The named values of one graph; those of the graphs around it are visible too."""

    def __init__(
        self,
        versions: dict[str, int],
        outer: Scope | None = None,
        attributes: Attributes | None = None,
    ) -> None:
        self.versions, self.outer, self.attributes = versions, outer, attributes
        self._values: dict[str, Value | None] = {}

    def define(self, name: str, value: Value | None) -> None:
        if name in self._values:
            raise UserError(f"two definitions of the value {name}")
        self._values[name] = value

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def find(self, name: str) -> Value | None:
        """The value of this name; None for an operand that was left out."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope._values:
                return scope._values[name]
            scope = scope.outer
        raise UserError(
            f"no value {name}",
            reason="no node, input or initialiser defines it",
            remedy=nearest(name, self._values),
        )


class Importer:
    """Converts one model."""

    def __init__(self, model: LoadedModel) -> None:
        self.model = model
        self.files = ExternalFiles(model.folder, model.file)
        self.structure = Structure()
        self.builder: Builder = Recorder(self.structure)
        self.functions = FunctionTable(model.proto.functions)
        #: Values that have a name from the file.
        self.named: set[Value] = set()
        self._nodes = self._depth = 0
        nodes = model.proto.graph.node
        self._most_nodes = _MAX_NODES + _MAX_USES * len(nodes)
        # Converting that many before refusing them would take seconds.
        self._require_few(self.functions.count_nodes(nodes))

    # ---- graphs ---------------------------------------------------------------------------------

    def graph(self, proto: Any, scope: Scope) -> list[Value | None]:
        """Convert the nodes of a graph whose inputs are in `scope`; the values of its outputs."""
        self.initialisers(proto, scope)
        self._convert_all(proto, scope)
        return [scope.find(o.name) for o in proto.output]

    def initialisers(self, proto: Any, scope: Scope) -> None:
        """Define the constants of a graph."""
        for tensor in proto.initializer:
            array, dtype = read_tensor(tensor, self.files)
            if self.model.owned:
                # The array is a copy; a model must not take twice its size.
                tensor.ClearField("raw_data")
            scope.define(tensor.name, self.builder.constant(array, dtype, tensor.name))
        for sparse in proto.sparse_initializer:
            array, dtype = read_sparse(sparse, self.files)
            name = sparse.values.name
            scope.define(name, self.builder.constant(array, dtype, name))

    def subgraph(
        self, proto: Any, args: Sequence[Value | None], outer: Scope
    ) -> list[Value | None]:
        """Convert a graph inside a node for these arguments."""
        if len(args) != len(proto.input):
            raise UserError(
                f"the graph {proto.name} has {len(proto.input)} inputs",
                reason=f"it gets {len(args)}",
            )
        scope = Scope(outer.versions, outer, outer.attributes)
        for param, arg in zip(proto.input, args, strict=True):
            scope.define(param.name, arg)
        return self._nested(lambda: self.graph(proto, scope))

    def function(
        self, proto: Any, args: Sequence[Value | None], attributes: Attributes
    ) -> list[Value | None]:
        """Convert a function's body for these arguments, in place of the node that calls it."""
        if len(args) > len(proto.input):
            raise UserError(f"the function {proto.name} has {len(proto.input)} inputs")
        for default in proto.attribute_proto:
            attributes.set_default(default)
        versions = self.model.versions | read_versions(proto.opset_import, proto.name)
        scope = Scope(versions, None, attributes)
        for name, arg in zip(proto.input, [*args, *[None] * len(proto.input)], strict=False):
            scope.define(name, arg)
        self._nested(lambda: self._convert_all(proto, scope))
        # ONNX's own functions omit outputs that a node does not use.
        return [scope.find(name) if name in scope else None for name in proto.output]

    def _nested(self, convert: Any) -> Any:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise UserError(f"graphs and functions are nested more than {MAX_DEPTH} deep")
        origin = self.builder.origin
        try:
            return convert()
        finally:
            self._depth -= 1
            self.builder.origin = origin

    # ---- nodes ----------------------------------------------------------------------------------

    def _convert_all(self, proto: Any, scope: Scope) -> None:
        for node in ordered_nodes(proto):
            self._nodes += 1
            self._require_few(self._nodes)
            with during("node", node_text(node), FailedNode(self.model, scope.find, node)):
                self._convert(node, scope)

    def _require_few(self, nodes: int) -> None:
        if nodes > self._most_nodes:
            raise UserError(
                f"the model has more than {self._most_nodes} nodes",
                reason="functions and loops are counted each time they are used",
            )

    def _convert(self, proto: Any, scope: Scope) -> None:
        origin = self.builder.origin = node_text(proto)
        with locating(origin, _REMEDY):
            self._define(proto, self._results(proto, scope), scope)

    def _results(self, proto: Any, scope: Scope) -> list[Value | None]:
        domain = plain_domain(proto.domain)
        inputs = [scope.find(n) if n else None for n in proto.input]
        version = scope.versions.get(domain, 1)
        node = Node(self, proto, inputs, scope, version)
        local = self.functions.find(domain, proto.op_type, proto.overload)
        if local is not None:
            return node.expand(local, inputs)
        converter = find_converter(domain, proto.op_type, version)
        if converter is not None:
            return as_list(converter(node))
        body = standard_function(node, domain)
        if body is None:
            raise UserError(f"there is no converter for {proto.op_type}")
        return node.expand(body, inputs)

    def _define(self, proto: Any, results: list[Value | None], scope: Scope) -> None:
        for k, name in enumerate(proto.output):
            if not name:
                continue
            if k >= len(results):
                raise UserError(f"output {k} ({name}) is not supported")
            self._name(results[k], name)
            scope.define(name, results[k])

    def _name(self, value: Value | None, name: str) -> None:
        """Name a value as in the file; one that passes through keeps its name."""
        if value is not None and value.constant is None and value not in self.named:
            value.name = name
            self.named.add(value)
