"""Turns functions that end by calling themselves into loops.

    def f(n, s):                                 def f(n, s):
        c = greater(n, i64(0))                       def body(i, n, s):
        def then():                                      c = greater(n, i64(0))
            m = sub(n, i64(1))                           m, t = branch(c, (n - 1, s + n), (n, s))
            t = add(s, n)                                return c, m, t
            r = call(f, m, t)                -->     n, s = loop(None, None, n, s, body)
            return r                                 return s
        def otherwise():
            return s
        y = branch(c, then, otherwise)
        return y

One side of the branch that computes the results must end in such a call, on operands of the same
types; the other side may compute something too, and runs once after the loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, cast

from tilewright.graph.building.builder import Builder
from tilewright.graph.ir import (
    Binding,
    CallFunction,
    Function,
    Graph,
    If,
    Module,
    Value,
    all_graphs,
)
from tilewright.graph.ir.types import TensorType, dims_of
from tilewright.graph.rewriting.copies import GraphCopy
from tilewright.ir import Var


def tail_recursion(module: Module) -> Module:
    """The module in which tail-recursive functions are loops."""
    return module.map(_as_loop)


class _Shape(NamedTuple):
    """The parts of a recursive function."""

    before: list[Binding]
    condition: Value
    #: The side that calls the function again, and the arguments that it passes.
    again: Graph
    args: tuple[Value, ...]
    last: Graph
    #: Whether the recursion continues where the condition holds.
    goes_on: bool


def _as_loop(function: Function) -> Function:
    shape = _shape(function)
    if shape is None:
        return function
    b = Builder(function.name)
    params = [b.input(p.name, p.type) for p in function.params]

    def body(_i: Value, *state: Value) -> tuple[Value, list[Value], list[Value]]:
        copy = _copied(b, function, state, shape.before)
        condition = copy.value(shape.condition)

        def next_state() -> list[Value]:
            _emit(b, copy, shape.again.body[:-1])
            return [copy.value(a) for a in shape.args]

        sides = (next_state, lambda: list(state))
        chosen = b.branch(condition, *(sides if shape.goes_on else sides[::-1]))
        going = condition if shape.goes_on else b.logical_not(condition)
        return going, _all(chosen), []

    state = _all(b.loop(None, params, body))
    copy = _copied(b, function, state, shape.before)
    _emit(b, copy, shape.last.body)
    b.output(*(copy.value(r) for r in shape.last.results), names=function.outputs)
    return b.function()


def _all(values: Any) -> list[Value]:
    return list(cast("tuple[Value, ...]", values)) if isinstance(values, tuple) else [values]


def _copied(
    b: Builder, function: Function, state: Sequence[Value], body: Sequence[Binding]
) -> GraphCopy:
    """The bindings before the branch, on other arguments."""
    copy = GraphCopy(dict(zip(function.params, state, strict=True)), _dims(function))
    _emit(b, copy, body)
    return copy


def _emit(b: Builder, copy: GraphCopy, body: Sequence[Binding]) -> None:
    for binding in body:
        b.bind_made(copy.binding(binding))


def _dims(function: Function) -> set[Var]:
    return {d for p in function.params for d in dims_of(p.type)}


# ---- functions that can be loops ----------------------------------------------------------------


def _shape(function: Function) -> _Shape | None:
    if not function.body or _calls_of(function, function.name) != 1:
        return None
    *before, last = function.body
    node = last.expr
    if not isinstance(node, If) or list(function.results) != list(last.outputs):
        return None
    if not all(isinstance(p.type, TensorType) for p in function.params):
        return None
    for again, other, goes_on in (
        (node.then, node.otherwise, True),
        (node.otherwise, node.then, False),
    ):
        args = _passed(function, again)
        if args is not None:
            return _Shape(before, node.condition, again, args, other, goes_on)
    return None


def _calls_of(function: Function, name: str) -> int:
    exprs = (b.expr for g in all_graphs(function) for b in g.body)
    return sum(isinstance(e, CallFunction) and e.callee == name for e in exprs)


def _passed(function: Function, side: Graph) -> tuple[Value, ...] | None:
    """The arguments of the recursive call that a side of the branch ends in."""
    if not side.body:
        return None
    last = side.body[-1]
    call = last.expr
    if not isinstance(call, CallFunction) or call.callee != function.name:
        return None
    same = [a.type == p.type for a, p in zip(call.operands, function.params, strict=True)]
    is_last = list(side.results) == list(last.outputs)
    return call.operands if is_last and all(same) else None
