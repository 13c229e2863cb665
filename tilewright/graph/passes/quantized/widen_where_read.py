"""Gives each reader of a value that is stored as bytes its own copy of the widening step.

    a = dequantize(q)                        a = dequantize(q)
    m = global_avg_pool(a)          -->      m = global_avg_pool(a)
    y = mul(a, s)                            b = dequantize(q)
                                             y = mul(b, s)

A value that something other than maps reads must be stored: it is stored as bytes if each of its
readers dequantizes it, or casts it to wider integers, by itself.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import TypeVar, cast

from tilewright.graph.fusion.definitions import FactTable, LoopKind
from tilewright.graph.fusion.tails import is_widening
from tilewright.graph.ir import Binding, Call, Graph, Module, Value
from tilewright.graph.rewriting.rewrite import users_of

AnyGraph = TypeVar("AnyGraph", bound=Graph)


def widen_where_read(module: Module) -> Module:
    """The module with values widened by their readers."""
    facts = FactTable()
    return module.map(lambda f: _repeated(f, facts))


def _repeated(graph: AnyGraph, facts: FactTable) -> AnyGraph:
    users = users_of(graph, graph.body)
    chosen = {
        b.outputs[0]: b
        for b in graph.body
        if is_widening(b) and _is_read_in_several_ways(users[b.outputs[0]], graph.body, facts)
    }
    if not chosen:
        return graph
    body: list[Binding] = []
    for binding in graph.body:
        if binding.outputs and binding.outputs[0] in chosen:
            continue
        body += _with_copies(binding, chosen)
    return cast("AnyGraph", graph.with_(body))


def _is_read_in_several_ways(
    users: Set[int | None], body: Sequence[Binding], facts: FactTable
) -> bool:
    """Whether several calls of this graph read a value, one of them a reduction."""
    if len(users) == 1 or None in users:
        return False
    kinds = [_kind(body[k], facts) for k in users if k is not None]
    return LoopKind.REDUCTION in kinds and LoopKind.OPAQUE not in kinds


def _kind(binding: Binding, facts: FactTable) -> LoopKind:
    if not isinstance(binding.expr, Call):
        return LoopKind.OPAQUE
    return facts(binding.expr, [v.type for v in binding.outputs]).kind


def _with_copies(binding: Binding, chosen: dict[Value, Binding]) -> list[Binding]:
    """A binding after its own copies of the widening steps that it reads."""
    call = binding.expr
    if not isinstance(call, Call) or not any(a in chosen for a in call.args if a is not None):
        return [binding]
    copies: dict[Value, Value] = {}
    made: list[Binding] = []
    for old in dict.fromkeys(a for a in call.args if a is not None and a in chosen):
        copies[old] = Value(old.name, old.type)
        made.append(Binding((copies[old],), chosen[old].expr, chosen[old].origin))
    args = [a if a is None else copies.get(a, a) for a in call.args]
    return [*made, Binding(binding.outputs, Call(call.op, args, call.attrs), binding.origin)]
