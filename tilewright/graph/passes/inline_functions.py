"""Replaces calls of functions and closures by their bodies.

    def double(y): return y + y                def main(x):
    def main(x):                     -->           a = add(x, x)
        a = call(double, x)                        return a
        return a

Functions that call themselves, directly or not, are left alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilewright.graph.ir import (
    Binding,
    CallFunction,
    Closure,
    Graph,
    Module,
    Value,
    all_graphs,
)
from tilewright.graph.ir.types import dims_of
from tilewright.graph.rewriting.copies import GraphCopy
from tilewright.graph.rewriting.rewrite import Rewriter, defined_dims
from tilewright.ir import Var


def inline_functions(module: Module) -> Module:
    """The module in which only recursive functions are still called."""
    if not any(_calls(f) for f in module.functions.values()):
        return module
    recursive = _recursive(module)
    return module.map(lambda f: _Inliner(module, recursive).graph(f))


def _calls(graph: Graph) -> list[CallFunction]:
    exprs = (b.expr for g in all_graphs(graph) for b in g.body)
    return [e for e in exprs if isinstance(e, CallFunction)]


def _recursive(module: Module) -> set[str]:
    """The functions that can be reached from themselves."""
    called = {
        name: {e.callee for e in _calls(f) if isinstance(e.callee, str)}
        for name, f in module.functions.items()
    }
    return {name for name in called if name in _reached(name, called)}


def _reached(start: str, called: Mapping[str, set[str]]) -> set[str]:
    found: set[str] = set()
    pending = list(called[start])
    while pending:
        name = pending.pop()
        if name not in found and name in called:
            found.add(name)
            pending.extend(called[name])
    return found


class _Inliner(Rewriter):
    def __init__(self, module: Module, recursive: set[str]) -> None:
        super().__init__()
        self._module, self._recursive = module, recursive
        self._closures: dict[Value, Graph] = {}
        #: Dimensions that are defined so far: an inlined closure uses these, not copies of them.
        self._visible: set[Var] = set()

    def enter(self, graph: Graph) -> None:
        self._visible.update(d for p in graph.params for d in dims_of(p.type))

    def visit(self, binding: Binding) -> Sequence[Binding]:
        done = self._inlined(binding)
        self._visible.update(d for b in done for d in defined_dims(b))
        return done

    def _inlined(self, binding: Binding) -> Sequence[Binding]:
        expr = binding.expr
        if isinstance(expr, Closure):
            self._closures[binding.outputs[0]] = expr.graph
        callee = self._callee(expr) if isinstance(expr, CallFunction) else None
        if callee is None or not isinstance(expr, CallFunction):
            return (binding,)
        visible = set[Var]() if isinstance(expr.callee, str) else self._visible
        copy = GraphCopy(dict(zip(callee.params, expr.operands, strict=True)), visible)
        body, results = copy.graph(callee)
        done = [b for made in body for b in self.visit(self.renewed(made))]
        for old, new in zip(binding.outputs, results, strict=True):
            self.replace(old, self.current(new))
        return done

    def _callee(self, expr: CallFunction) -> Graph | None:
        if isinstance(expr.callee, str):
            return None if expr.callee in self._recursive else self._module[expr.callee]
        return self._closures.get(expr.callee)
