"""Removes bindings that nothing needs, and functions that nothing calls.

def main(x):                     def main(x):
    a = exp(x)           -->         b = relu(x)
    b = relu(x)                      return b
    return b
"""

from __future__ import annotations

from typing import cast

from tilewright.graph.ir import (
    Binding,
    Call,
    CallFunction,
    Function,
    Graph,
    Module,
    Value,
    all_graphs,
)
from tilewright.graph.ir.types import dims_of
from tilewright.graph.rewriting.rewrite import AnyGraph, attribute_dims, defined_dims
from tilewright.ir import Var


def dead_code(module: Module) -> Module:
    """The module without bindings and functions that do not affect its results."""
    module = module.map(lambda f: _Liveness(f).graph(f))
    reached = _reached(module)
    if len(reached) == len(module.functions):
        return module
    functions = [f for f in module.functions.values() if f.name in reached]
    return Module(functions, module.data_types.values())


class _Liveness:
    """Walks bindings backwards with the values and dimensions that later ones need."""

    def __init__(self, function: Function) -> None:
        self._values: set[Value] = set()
        self._dims: set[Var] = set()
        #: The binding that defines each dimension; other bindings only use it.
        self._definers: dict[Var, Binding] = {}
        self._find_definers(function, {d for p in function.params for d in dims_of(p.type)})

    def _find_definers(self, graph: Graph, known: set[Var]) -> None:
        for binding in graph.body:
            for inner in binding.expr.graphs:
                own = {d for p in inner.params for d in dims_of(p.type)}
                self._find_definers(inner, known | own)
            for dim in defined_dims(binding):
                if dim not in known:
                    known.add(dim)
                    self._definers.setdefault(dim, binding)

    def graph(self, graph: AnyGraph) -> AnyGraph:
        self._values.update(graph.results)
        self._dims.update(d for r in graph.results for d in dims_of(r.type))
        kept: list[Binding] = []
        changed = False
        for binding in reversed(graph.body):
            if not self._is_live(binding):
                changed = True
                continue
            renewed = self._keep(binding)
            changed |= renewed is not binding
            kept.append(renewed)
        # `with_` gives a graph of the same class.
        return cast(AnyGraph, graph.with_(reversed(kept))) if changed else graph

    def _is_live(self, binding: Binding) -> bool:
        if _has_effect(binding) or any(v in self._values for v in binding.outputs):
            return True
        return any(
            d in self._dims and self._definers.get(d) is binding for d in defined_dims(binding)
        )

    def _keep(self, binding: Binding) -> Binding:
        expr = binding.expr
        self._values.update(a for a in expr.args if a is not None)
        self._dims |= attribute_dims(expr)
        self._dims.update(d for v in binding.outputs for d in dims_of(v.type))
        if not expr.graphs:
            return binding
        graphs = [self.graph(g) for g in expr.graphs]
        self._dims.update(d for g in graphs for p in g.params for d in dims_of(p.type))
        if all(a is b for a, b in zip(graphs, expr.graphs, strict=True)):
            return binding
        return Binding(binding.outputs, expr.with_graphs(graphs), binding.origin)


def _has_effect(binding: Binding) -> bool:
    return isinstance(binding.expr, Call) and not binding.expr.op.pure and not binding.outputs


def _reached(module: Module) -> set[str]:
    """The functions that `main` calls, directly or not; all of them where there is no `main`."""
    if "main" not in module.functions:
        return set(module.functions)
    found, pending = {"main"}, ["main"]
    while pending:
        called = _called(module.functions[pending.pop()]) & set(module.functions)
        pending.extend(called - found)
        found |= called
    return found


def _called(function: Function) -> set[str]:
    exprs = (b.expr for g in all_graphs(function) for b in g.body)
    return {e.callee for e in exprs if isinstance(e, CallFunction) and isinstance(e.callee, str)}
