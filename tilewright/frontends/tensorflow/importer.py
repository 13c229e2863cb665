"""Converts nodes when their results are needed: scopes, functions, limits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from tilewright.frontends.common.converting import as_list
from tilewright.frontends.common.located import locating
from tilewright.frontends.common.operands import Recorder
from tilewright.frontends.common.structure import Structure
from tilewright.frontends.tensorflow.bodies import Body, Reference
from tilewright.frontends.tensorflow.load import LoadedModel
from tilewright.frontends.tensorflow.node import Node
from tilewright.frontends.tensorflow.table import TABLE
from tilewright.frontends.tensorflow.variables import Contents, Variable
from tilewright.frontends.tensorflow.wire import Message
from tilewright.graph import Builder, Value
from tilewright.support.errors import UserError

#: Functions and bodies of loops are converted again for each use: a small file may result in very
#: many nodes. More than this, plus `_MAX_USES` times the number in the file, are refused.
_MAX_NODES: Final = 100_000
_MAX_USES: Final = 20
_MAX_DEPTH: Final = 64
#: Operators whose converters request their operands themselves.
LAZY: Final = frozenset(["Merge", "RefMerge", "Exit", "RefExit"])


class Scope:
    """The results of the nodes of one body, for one set of arguments.

    A scope inside another is for a branch or an iteration of the same body: it sees results of the
    outer one, and keeps those that are computed inside it.
    """

    def __init__(
        self,
        body: Body,
        outer: Scope | None = None,
        attributes: Mapping[str, Message] | None = None,
    ) -> None:
        self.body, self.outer = body, outer
        self.attributes: Mapping[str, Message] = attributes or (outer.attributes if outer else {})
        self.results: dict[str, list[Any]] = {}
        #: Where the operands of `Enter` are computed: outside the loop.
        self.around: Scope | None = outer.around if outer else None
        #: Loops of the first generation that were converted, by the names of their frames.
        self.frames: dict[str, dict[str, Any]] = {}

    def find(self, name: str) -> list[Any] | None:
        scope: Scope | None = self
        while scope is not None:
            found = scope.results.get(name)
            if found is not None:
                return found
            scope = scope.outer
        return None


class Importer:
    """Converts one model; `refuse` raises an error about operators that nothing converts."""

    def __init__(self, model: LoadedModel, refuse: Callable[[], None]) -> None:
        self.model, self._refuse = model, refuse
        self.structure = Structure()
        self.builder: Builder = Recorder(self.structure)
        self.contents = Contents(model)
        #: Values that have a name from the file.
        self.named: set[Value] = set()
        self._constants: dict[Variable, Value] = {}
        self._nodes = self._depth = 0
        count = sum(len(b.nodes) for b in (model.body, *model.functions.values()))
        self._most_nodes = _MAX_NODES + _MAX_USES * count

    # ---- results --------------------------------------------------------------------------------

    def result(self, reference: Reference, scope: Scope) -> Any:
        """A result of a node."""
        found = scope.find(reference.node)
        found = self._converted(reference.node, scope) if found is None else found
        if reference.index >= len(found):
            raise UserError(f"the node {reference.node} has no result {reference.index}")
        return found[reference.index]

    def value(self, reference: Reference, scope: Scope) -> Value:
        """A result that must be a tensor."""
        found = self.result(reference, scope)
        if not isinstance(found, Value):
            raise UserError(f"{reference.node} gives no tensor")
        return found

    def _converted(self, wanted: str, scope: Scope) -> list[Any]:
        """Convert a node and all that it needs, without recursion: graphs may be deep."""
        stack, opened = [wanted], set[str]()
        while stack:
            name = stack[-1]
            if scope.find(name) is not None:
                stack.pop()
                continue
            node = scope.body.node(name)
            missing = [] if node.op in LAZY else self._missing(node, scope)
            if missing:
                if name in opened:
                    raise UserError(f"the node {name} needs its own result")
                opened.add(name)
                stack += missing
                continue
            scope.results[name] = self._convert(node, scope)
            stack.pop()
        found = scope.find(wanted)
        assert found is not None
        return found

    @staticmethod
    def _missing(node: Message, scope: Scope) -> list[str]:
        if node.op == "Enter" and scope.around is not None:
            return []
        names = [r.node for r in scope.body.inputs(node)]
        return [n for n in names if scope.find(n) is None]

    def _convert(self, node: Message, scope: Scope) -> list[Any]:
        self._nodes += 1
        if self._nodes > self._most_nodes:
            raise UserError(
                f"the model means more than {self._most_nodes} nodes",
                reason="functions or loops inside each other multiply them",
            )
        origin = self.builder.origin = f"node {node.name} ({node.op})"
        with locating(origin):
            found = self._results(node, scope)
        for k, value in enumerate(found):
            if not isinstance(value, Value) or value.constant is not None:
                continue
            # A value that passes through keeps its name.
            if value not in self.named and not scope.body.is_function:
                value.name = node.name if k == 0 else f"{node.name}:{k}"
                self.named.add(value)
        return found

    def _results(self, node: Message, scope: Scope) -> list[Any]:
        if node.op == "Enter" and scope.around is not None:
            (source,) = scope.body.inputs(node)
            return [self.result(source, scope.around)]
        given: list[Any] = []
        if node.op not in LAZY:
            given = [self.result(r, scope) for r in scope.body.inputs(node)]
        convert = TABLE.find("", node.op)
        view = Node(self, node, given, scope)
        if convert is None and node.op in self.model.functions:
            # Functions may be called by their names, like operators.
            return self.body(self.model.functions[node.op], given, node.attr)
        if convert is None:
            self._refuse()
            raise UserError(f"there is no converter for {node.op}")
        return as_list(convert(view))

    # ---- functions ------------------------------------------------------------------------------

    def function(self, function: Message, args: Sequence[Any]) -> list[Any]:
        """The results of a function for these arguments."""
        body = self.model.functions.get(function.name)
        if body is None:
            raise UserError(f"the model has no function {function.name}")
        return self.body(body, args, function.attr)

    def body(self, body: Body, args: Sequence[Any], attributes: Mapping[str, Message]) -> list[Any]:
        """The results of a function's nodes for these arguments."""
        if len(args) != len(body.params):
            raise UserError(f"the function {body.name} has {len(body.params)} parameters")
        if self._depth >= _MAX_DEPTH:
            raise UserError("functions call each other too deeply")
        scope = Scope(body, None, attributes)
        for name, arg in zip(body.params, args, strict=True):
            scope.results[name] = [arg]
        self._depth += 1
        try:
            return [self._returned(body, name, scope) for name in body.outputs]
        finally:
            self._depth -= 1

    def _returned(self, body: Body, name: str, scope: Scope) -> Any:
        reference = body.reference(body.results.get(name, ""))
        if reference is None:
            raise UserError(f"the function {body.name} returns no {name}")
        return self.result(reference, scope)

    # ---- variables ------------------------------------------------------------------------------

    def variable(self, variable: Variable) -> Value:
        """The value of a variable as a constant, one for all uses."""
        found = self._constants.get(variable)
        if found is None:
            array, dtype = self.contents.variable(variable)
            found = self.builder.constant(array, dtype, variable.shared_name or variable.node)
            self._constants[variable] = found
        return found
