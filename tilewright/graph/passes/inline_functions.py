"""Puts the bodies of functions and closures in the place of their calls.

    def double(y): return y + y                def main(x):
    def main(x):                     -->           a = add(x, x)
        a = call(double, x)                        return a
        return a

Functions that call themselves, directly or not, are left alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.graph.ir import (
    Binding,
    Call,
    CallFunction,
    Closure,
    Graph,
    Module,
    Node,
    Read,
    Value,
    all_graphs,
)
from tilewright.graph.naturals import renewed
from tilewright.graph.rewrite import Rewriter, defined_dims
from tilewright.graph.types import TensorType, Type, dims_of, substitute_type
from tilewright.ir import Expr, Var, substitute


def inline_functions(module: Module) -> Module:
    """The module in which functions are only called where they are recursive."""
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
        #: Dimensions that are defined so far: inside a closure they mean the same.
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
        copy = _Copy(dict(zip(callee.params, expr.operands, strict=True)), visible)
        body, results = copy.graph(callee)
        done = [b for made in body for b in self.visit(self.renewed(made))]
        for old, new in zip(binding.outputs, results, strict=True):
            self.replace(old, self.current(new))
        return done

    def _callee(self, expr: CallFunction) -> Graph | None:
        if isinstance(expr.callee, str):
            return None if expr.callee in self._recursive else self._module[expr.callee]
        return self._closures.get(expr.callee)


class _Copy:
    """A graph with values and dimensions of its own, on given arguments."""

    def __init__(self, args: Mapping[Value, Value], visible: set[Var]) -> None:
        self._visible = frozenset(visible)
        self._values: dict[Value, Value] = dict(args)
        self._dims: dict[Var, Expr] = {}
        for param, arg in args.items():
            self._learn(param.type, arg.type)

    def _learn(self, param: Type, arg: Type) -> None:
        """Dimensions of a parameter are those of the argument."""
        if isinstance(param, TensorType) and isinstance(arg, TensorType):
            for own, given in zip(param.shape, arg.shape, strict=True):
                if isinstance(own, Var) and own not in self._visible:
                    self._dims.setdefault(own, given)
            return
        for own_part, given_part in zip(param.parts, arg.parts, strict=False):
            self._learn(own_part, given_part)

    def graph(self, graph: Graph) -> tuple[list[Binding], list[Value]]:
        body = [self._binding(b) for b in graph.body]
        return body, [self._value(r) for r in graph.results]

    def _binding(self, binding: Binding) -> Binding:
        expr = self._expr(binding.expr)
        return Binding([self._defined(v) for v in binding.outputs], expr, binding.origin)

    def _expr(self, expr: Node) -> Node:
        args = [None if a is None else self._value(a) for a in expr.args]
        if isinstance(expr, Read):
            value = args[0]
            assert value is not None
            return Read(value, [self._own(d) for d in expr.dims])
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

    def _value(self, value: Value) -> Value:
        return self._values.get(value, value)

    def _defined(self, value: Value) -> Value:
        for dim in dims_of(value.type):
            if _is_bare(dim, value.type):
                self._own(dim)
        made = Value(value.name, substitute_type(value.type, self._dims))
        self._values[value] = made
        return made

    def _own(self, dim: Var) -> Var:
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
    if isinstance(value, tuple):
        return tuple(_substituted(v, dims) for v in value)  # pyright: ignore[reportUnknownVariableType]
    return value
