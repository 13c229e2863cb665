"""Bindings, and what consists of them: graphs, functions, modules."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from tilewright.graph.ir.nodes import Call, Node
from tilewright.graph.ir.types import Type
from tilewright.graph.ir.values import Value
from tilewright.support.errors import UserError


class Binding:
    """`outputs = expr`; `origin` says where it comes from, such as a node of a model file."""

    __slots__ = ("expr", "origin", "outputs")

    def __init__(self, outputs: Iterable[Value], expr: Node, origin: str = "") -> None:
        self.outputs, self.expr, self.origin = tuple(outputs), expr, origin

    @property
    def label(self) -> str:
        """Its name in messages: its origin, or else the values that it defines."""
        return self.origin or ", ".join(v.name for v in self.outputs)

    @property
    def is_view(self) -> bool:
        """Whether the result is the operand's memory."""
        return isinstance(self.expr, Call) and self.expr.op.view

    def __repr__(self) -> str:
        from tilewright.graph.text.printer import binding_text

        return binding_text(self)


class Graph:
    """A block of bindings with parameters and results."""

    __slots__ = ("body", "params", "results")

    def __init__(
        self, params: Iterable[Value], body: Iterable[Binding], results: Iterable[Value]
    ) -> None:
        self.params, self.results = tuple(params), tuple(results)
        self.body = list(body)

    def with_(self, body: Iterable[Binding], results: Iterable[Value] | None = None) -> Graph:
        """The same graph around another body."""
        return Graph(self.params, body, self.results if results is None else results)


class Function(Graph):
    """A graph that is called by name; its inputs are known by the names of the parameters.

    `outputs` are the names that callers know the results by.
    """

    __slots__ = ("_outputs", "name")

    def __init__(
        self,
        name: str,
        params: Iterable[Value],
        body: Iterable[Binding],
        results: Iterable[Value],
        outputs: Sequence[str] = (),
    ) -> None:
        super().__init__(params, body, results)
        self.name = name
        self._outputs = tuple(outputs)

    @property
    def outputs(self) -> tuple[str, ...]:
        return self._outputs or tuple(r.name for r in self.results)

    def with_(self, body: Iterable[Binding], results: Iterable[Value] | None = None) -> Function:
        results = self.results if results is None else tuple(results)
        return Function(self.name, self.params, body, results, self._outputs)

    def named(self, outputs: Sequence[str]) -> Function:
        """The same function with other names for its results."""
        return Function(self.name, self.params, self.body, self.results, outputs)

    def __repr__(self) -> str:
        from tilewright.graph.text.printer import function_text

        return function_text(self)


class DataDef:
    """An algebraic data type: the types of the fields of each constructor."""

    __slots__ = ("constructors", "name")

    def __init__(self, name: str, constructors: Mapping[str, Sequence[Type]]) -> None:
        self.name = name
        self.constructors = {c: tuple(fields) for c, fields in constructors.items()}


class Module:
    """Functions by name, and the data types they use; `main` is the entry point."""

    __slots__ = ("data_types", "functions")

    def __init__(self, functions: Iterable[Function], data_types: Iterable[DataDef] = ()) -> None:
        self.functions = {f.name: f for f in functions}
        self.data_types = {d.name: d for d in data_types}

    @property
    def main(self) -> Function:
        if "main" not in self.functions:
            raise UserError("the module has no function main")
        return self.functions["main"]

    def __getitem__(self, name: str) -> Function:
        from tilewright.support.errors import nearest

        if name not in self.functions:
            raise UserError(f"no function {name}", remedy=nearest(name, self.functions))
        return self.functions[name]

    def map(self, change: Callable[[Function], Function]) -> Module:
        """The module with `change` applied to every function; itself if nothing changed."""
        functions = [change(f) for f in self.functions.values()]
        if all(a is b for a, b in zip(functions, self.functions.values(), strict=True)):
            return self
        return Module(functions, self.data_types.values())

    def __repr__(self) -> str:
        from tilewright.graph.text.printer import module_text

        return module_text(self)


def all_graphs(graph: Graph) -> Iterator[Graph]:
    """A graph and all graphs inside it, outer ones first."""
    pending = [graph]
    while pending:
        current = pending.pop()
        yield current
        inner = [g for b in current.body for g in b.expr.graphs]
        pending.extend(reversed(inner))
