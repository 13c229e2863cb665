"""Parts of a module as modules of their own, and modules without the data of their authors.

Reproducers of faults are made with these: values that a part uses of the rest become parameters.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final, cast

import numpy as np

from tilewright.graph.ir import (
    Array,
    Binding,
    Call,
    CallFunction,
    Function,
    Module,
    Value,
    all_graphs,
)
from tilewright.graph.ir.attributes import attribute_parts
from tilewright.graph.rewriting.rewrite import Rewriter
from tilewright.support.stand_ins import Filling, filled, stand_in

#: Lists of numbers or strings of at least this length in attributes are treated as data.
_LONG: Final = 9


def module_part(module: Module, body: Sequence[Binding], wanted: Collection[Value] = ()) -> Module:
    """These bindings as `main`; its results are those `wanted`, and those that nothing uses."""
    used = dict.fromkeys(v for b in body for v in _used(b))
    made = {v for b in body for v in _defined_values(b)}
    params = [v for v in used if v not in made and not v.is_constant]
    results = [v for b in body for v in b.outputs if v not in used or v in wanted]
    main = Function("main", [Value(p.name, p.type) for p in params], body, results)
    rewriter = Rewriter()
    # Parameters must not keep what was known about the values they replace.
    rewriter.values = dict(zip(params, main.params, strict=True))
    return _reachable(rewriter.graph(main), module)


def _used(binding: Binding) -> Iterable[Value]:
    """The values that a binding uses, those used in its inner graphs included."""
    yield from (a for a in binding.expr.args if a is not None)
    for graph in (g for inner in binding.expr.graphs for g in all_graphs(inner)):
        yield from (a for b in graph.body for a in b.expr.args if a is not None)
        yield from graph.results


def _defined_values(binding: Binding) -> Iterable[Value]:
    yield from binding.outputs
    for graph in (g for inner in binding.expr.graphs for g in all_graphs(inner)):
        yield from graph.params
        yield from (v for b in graph.body for v in b.outputs)


def _reachable(main: Function, module: Module) -> Module:
    """A module of `main` and the functions that it calls, directly or not."""
    found, pending = {"main": main}, [main]
    while pending:
        names = {n for n in _called(pending.pop()) if n in module.functions and n not in found}
        found |= {n: module.functions[n] for n in names}
        pending += [module.functions[n] for n in names]
    return Module(found.values(), module.data_types.values())


def _called(function: Function) -> Iterable[str]:
    for graph in all_graphs(function):
        for binding in graph.body:
            callee = binding.expr.callee if isinstance(binding.expr, CallFunction) else None
            if isinstance(callee, str):
                yield callee


# ---- data ---------------------------------------------------------------------------------------


def without_data(module: Module, filling: Filling) -> Module:
    """The module with other elements in constants, and in attributes that are long."""
    return _Disguise(filling).module(module)


class _Disguise(Rewriter):
    def __init__(self, filling: Filling) -> None:
        super().__init__()
        self._filling: Filling = filling
        self._defined_values: dict[Value, Value] = {}

    def current(self, value: Value) -> Value:
        if value.constant is None:
            return value
        if value not in self._defined_values:
            array = stand_in(value.constant, value.name, self._filling)
            is_same = array is value.constant
            self._defined_values[value] = value if is_same else Value(value.name, value.type, array)
        return self._defined_values[value]

    def visit(self, binding: Binding) -> Sequence[Binding]:
        expr = binding.expr
        if not isinstance(expr, Call):
            return (binding,)
        attrs = {k: self._attribute(k, v) for k, v in expr.attrs.items()}
        if all(attrs[k] is v for k, v in expr.attrs.items()):
            return (binding,)
        return (Binding(binding.outputs, Call(expr.op, expr.args, attrs), binding.origin),)

    def _attribute(self, name: str, value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return stand_in(cast(Array, value), name, self._filling)
        parts = attribute_parts(value)
        if len(parts) < _LONG:
            return value
        if all(isinstance(v, float) for v in parts):
            numbers = filled(np.dtype(float), (len(parts),), name, self._filling)
            return tuple(numbers.tolist())
        if all(isinstance(v, str) for v in parts):
            return tuple(f"s{k}" for k in range(len(parts)))
        return value
