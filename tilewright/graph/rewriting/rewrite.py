"""The base class of passes: a walk over bindings that replaces values as it goes.

    class Simplifier(Rewriter):
        def visit(self, binding: Binding) -> Sequence[Binding]:
            if is_identity(binding.expr):
                self.replace(binding.outputs[0], binding.expr.args[0])
                return ()
            return (binding,)

`visit` sees each binding with its operands replaced and its inner graphs rewritten, and returns
the bindings that take its place. Objects that do not change stay the same, up to the module.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar, cast

import numpy as np

from tilewright.graph.ir import Binding, Call, Fused, Graph, Module, Node, Read, Value, all_graphs
from tilewright.graph.ir.attributes import attribute_parts
from tilewright.graph.ir.types import ANY, TensorType, Type, dims_of, substitute_type
from tilewright.ir import Expr, Var, free_vars, substitute

AnyGraph = TypeVar("AnyGraph", bound=Graph)


class Rewriter:
    """Rewrites graphs from top to bottom; inner graphs see replacements made around them."""

    def __init__(self) -> None:
        self.values: dict[Value, Value] = {}
        self.dims: dict[Var, Expr] = {}
        #: Dimensions that the bindings kept so far define.
        self._defined: set[Var] = set()

    def module(self, module: Module) -> Module:
        return module.map(self.graph)

    def visit(self, binding: Binding) -> Sequence[Binding]:
        """The bindings that replace `binding`."""
        return (binding,)

    def enter(self, graph: Graph) -> None:
        """Called before the bindings of a graph."""

    def leave(self, graph: Graph) -> None:
        """Called after the bindings of a graph."""

    def replace(self, old: Value, new: Value) -> None:
        """Use `new` wherever `old` was used, and its dimensions wherever those of `old` were."""
        self.values[old] = new
        for old_dim, new_dim in _dim_pairs(old.type, new.type):
            if isinstance(old_dim, Var) and old_dim is not new_dim and old_dim is not ANY:
                self.replace_dim(old_dim, new_dim)

    def replace_dim(self, old: Var, new: Expr) -> None:
        """Use `new` wherever the dimension `old` was used, unless something else defines it."""
        if old not in self._defined:
            self.dims.setdefault(old, new)

    # ---- walking --------------------------------------------------------------------------------

    def graph(self, graph: AnyGraph) -> AnyGraph:
        params = tuple(self._retyped(p) for p in graph.params)
        self._defined.update(d for p in params for d in dims_of(p.type))
        self.enter(graph)
        body: list[Binding] = []
        for binding in graph.body:
            kept = self.visit(self.renewed(binding))
            self._defined.update(d for b in kept for d in defined_dims(b))
            body.extend(kept)
        self.leave(graph)
        results = [self.current(r) for r in graph.results]
        if (
            _same(params, graph.params)
            and _same(body, graph.body)
            and _same(results, graph.results)
        ):
            return graph
        changed = graph.with_(body, results)
        changed.params = params
        # `with_` gives a graph of the same class.
        return cast(AnyGraph, changed)

    def current(self, value: Value) -> Value:
        """The value that currently replaces `value`, or itself."""
        while value in self.values:
            value = self.values[value]
        return value

    def renewed(self, binding: Binding) -> Binding:
        """The binding on current operands, with its graphs rewritten."""
        expr = self._expr(binding.expr)
        outputs = tuple(self._retyped(v) for v in binding.outputs)
        if expr is binding.expr and _same(outputs, binding.outputs):
            return binding
        return Binding(outputs, expr, binding.origin)

    def _expr(self, expr: Node) -> Node:
        args = tuple(None if a is None else self.current(a) for a in expr.args)
        if not _same(args, expr.args):
            expr = expr.with_args(args)
        graphs = tuple(self.graph(g) for g in expr.graphs)
        if not _same(graphs, expr.graphs):
            expr = expr.with_graphs(graphs)
        return self._with_dims(expr) if self.dims and isinstance(expr, Call) else expr

    def _with_dims(self, call: Call) -> Node:
        if not any(_mentions(v, self.dims) for v in call.attrs.values()):
            return call
        attrs = {k: _substituted(v, self.dims) for k, v in call.attrs.items()}
        return Call(call.op, call.args, call.op.bind(call.args, attrs)[1])

    def _retyped(self, value: Value) -> Value:
        """The value, or one in its place whose type uses current dimensions."""
        if not self.dims:
            return value
        type_ = substitute_type(value.type, self.dims)
        if type_ is value.type:
            return value
        made = Value(value.name, type_)
        known = value.known
        if known is not None:
            elements = np.empty(known.shape, object)
            for index in np.ndindex(known.shape):
                elements[index] = substitute(cast(Expr, known[index]), self.dims)
            made.known = elements
        self.values[value] = made
        return made


def defined_dims(binding: Binding) -> Sequence[Var]:
    """The dimensions that a binding may define: those it reads, or sizes of its outputs."""
    if isinstance(binding.expr, Read):
        return binding.expr.dims
    types = [v.type for v in binding.outputs]
    return [d for t in types if isinstance(t, TensorType) for d in t.shape if isinstance(d, Var)]


def attribute_dims(expr: Node) -> set[Var]:
    """The dimensions that the attributes of a call mention."""
    if not isinstance(expr, Call):
        return set()
    return {d for v in expr.attrs.values() for p in attribute_parts(v) for d in _dims_in(p)}


def _dims_in(value: Any) -> frozenset[Var]:
    return free_vars(value) if isinstance(value, Expr) else frozenset()


def _dim_pairs(a: Type, b: Type) -> list[tuple[Expr, Expr]]:
    if isinstance(a, TensorType) and isinstance(b, TensorType) and a.ndim == b.ndim:
        return list(zip(a.shape, b.shape, strict=True))
    parts = zip(a.parts, b.parts, strict=False)
    return [pair for x, y in parts for pair in _dim_pairs(x, y)]


def _mentions(value: Any, dims: Mapping[Var, Expr]) -> bool:
    return any(not _dims_in(p).isdisjoint(dims) for p in attribute_parts(value))


def _substituted(value: Any, dims: Mapping[Var, Expr]) -> Any:
    if isinstance(value, Expr):
        return substitute(value, dims)
    if isinstance(value, tuple):
        return tuple(_substituted(v, dims) for v in attribute_parts(value))
    return value


def _same(a: Sequence[Any], b: Sequence[Any]) -> bool:
    return len(a) == len(b) and all(x is y for x, y in zip(a, b, strict=True))


# ---- groups -------------------------------------------------------------------------------------


def grouped(members: Sequence[Binding], outputs: Sequence[Value]) -> Binding:
    """One binding for calls that become one kernel with the results `outputs`."""
    inner = {v: Value(v.name, v.type) for v in outputs}
    body = [_renamed(b, inner) for b in members]
    origin = ", ".join(dict.fromkeys(b.origin for b in members if b.origin))
    return Binding(outputs, Fused(Graph((), body, inner.values())), origin)


def _renamed(binding: Binding, inner: dict[Value, Value]) -> Binding:
    args = [None if a is None else inner.get(a, a) for a in binding.expr.args]
    outputs = [inner.get(v, v) for v in binding.outputs]
    return Binding(outputs, binding.expr.with_args(args), binding.origin)


def all_used(binding: Binding) -> Iterator[Value]:
    """Operands, and values that inner graphs use."""
    yield from (a for a in dict.fromkeys(binding.expr.args) if a is not None)
    for inner in binding.expr.graphs:
        for graph in all_graphs(inner):
            yield from graph.results
            for b in graph.body:
                yield from (a for a in b.expr.args if a is not None)


def users_of(graph: Graph, body: Sequence[Binding]) -> dict[Value, set[int | None]]:
    """The calls that read each value, by number; None for uses other than by calls."""
    users: dict[Value, set[int | None]] = {v: set() for b in body for v in b.outputs}
    for index, binding in enumerate(body):
        plain = isinstance(binding.expr, Call)
        for value in all_used(binding):
            if value in users:
                users[value].add(index if plain else None)
    for value in graph.results:
        if value in users:
            users[value].add(None)
    return users
