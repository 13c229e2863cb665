"""Copies of graphs, each with values and dimensions of its own: for calls and loop iterations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewright.graph.ir import Binding, Call, Graph, Node, Read, Value
from tilewright.graph.ir.types import TensorType, Type, dims_of, substitute_type
from tilewright.graph.sizes.naturals import renewed
from tilewright.ir import Expr, Var, substitute
from tilewright.support.narrowing import is_tuple


class GraphCopy:
    """A graph with values and dimensions of its own, on given arguments."""

    def __init__(self, args: Mapping[Value, Value], visible: set[Var]) -> None:
        self._visible = frozenset(visible)
        self._values: dict[Value, Value] = dict(args)
        self._dims: dict[Var, Expr] = {}
        for param, arg in args.items():
            self._learn(param.type, arg.type)

    def _learn(self, param: Type, arg: Type) -> None:
        """Replace the dimensions of a parameter by those of the argument."""
        if isinstance(param, TensorType) and isinstance(arg, TensorType):
            for own, given in zip(param.shape, arg.shape, strict=True):
                if isinstance(own, Var) and own not in self._visible:
                    self._dims.setdefault(own, given)
            return
        for own_part, given_part in zip(param.parts, arg.parts, strict=False):
            self._learn(own_part, given_part)

    def graph(self, graph: Graph) -> tuple[list[Binding], list[Value]]:
        """All bindings of a graph, and its results."""
        body = [self.binding(b) for b in graph.body]
        return body, [self.value(r) for r in graph.results]

    def binding(self, binding: Binding) -> Binding:
        """A binding in the copy, after those that it depends on."""
        expr = self._expr(binding.expr)
        return Binding([self._defined(v) for v in binding.outputs], expr, binding.origin)

    def _expr(self, expr: Node) -> Node:
        args = [None if a is None else self.value(a) for a in expr.args]
        if isinstance(expr, Read):
            value = args[0]
            assert value is not None
            return Read(value, [self._fresh_if_local(d) for d in expr.dims])
        if isinstance(expr, Call):
            attrs = {k: _substituted(v, self._dims) for k, v in expr.attrs.items()}
            return Call(expr.op, args, attrs)
        graphs = [self._inner(g) for g in expr.graphs]
        changed = expr.with_args(args)
        return changed.with_graphs(graphs) if graphs else changed

    def _inner(self, graph: Graph) -> Graph:
        params = [self._defined(p) for p in graph.params]
        body, results = self.graph(graph)
        return Graph(params, body, results)

    def value(self, value: Value) -> Value:
        """The value in the copy that corresponds to one of the graph."""
        return self._values.get(value, value)

    def _defined(self, value: Value) -> Value:
        for dim in dims_of(value.type):
            if _is_bare(dim, value.type):
                self._fresh_if_local(dim)
        made = Value(value.name, substitute_type(value.type, self._dims))
        self._values[value] = made
        return made

    def _fresh_if_local(self, dim: Var) -> Var:
        """A dimension that is defined inside gets a new one for each copy."""
        if dim in self._visible:
            return dim
        found = self._dims.setdefault(dim, renewed(dim))
        return found if isinstance(found, Var) else dim


def _is_bare(dim: Var, type_: Type) -> bool:
    return isinstance(type_, TensorType) and any(d is dim for d in type_.shape)


def _substituted(value: Any, dims: Mapping[Var, Expr]) -> Any:
    if isinstance(value, Expr):
        return substitute(value, dims)
    if is_tuple(value):
        return tuple(_substituted(v, dims) for v in value)
    return value
