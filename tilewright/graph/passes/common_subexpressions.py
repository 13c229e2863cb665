"""Computes equal expressions once.

    a = exp(x)                   a = exp(x)
    b = exp(x)           -->     c = add(a, a)
    c = add(a, b)

An inner graph reuses what the graphs around it computed, not the other way round.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, Final

from tilewright.graph.ir import (
    Binding,
    Call,
    Construct,
    Graph,
    MakeTuple,
    Module,
    Node,
    Project,
    Value,
)
from tilewright.graph.ir.attributes import attribute_key
from tilewright.graph.rewriting.rewrite import Rewriter

#: Constants up to this many bytes are compared by content, larger ones by identity.
_COMPARED: Final = 1 << 16


def common_subexpressions(module: Module) -> Module:
    """The module with equal pure calls on equal operands merged."""
    return module.map(lambda f: _Merger().graph(f))


class _Merger(Rewriter):
    def __init__(self) -> None:
        super().__init__()
        self._seen: dict[Hashable, Binding] = {}
        #: The keys that each open graph added, removed when it closes.
        self._added: list[list[Hashable]] = []

    def enter(self, graph: Graph) -> None:
        del graph
        self._added.append([])

    def leave(self, graph: Graph) -> None:
        del graph
        for key in self._added.pop():
            del self._seen[key]

    def visit(self, binding: Binding) -> Sequence[Binding]:
        rule = _KEYS.get(type(binding.expr))
        key = rule(binding.expr) if rule is not None else None
        if key is None:
            return (binding,)
        first = self._seen.get(key)
        if first is None:
            self._seen[key] = binding
            self._added[-1].append(key)
            return (binding,)
        for old, new in zip(binding.outputs, first.outputs, strict=True):
            self.replace(old, new)
        return ()


def _call_key(call: Call) -> Hashable | None:
    if not call.op.pure:
        return None
    attrs = tuple(attribute_key(v) for v in call.attrs.values())
    return (call.op.name, tuple(map(_value_key, call.args)), attrs)


def _value_key(value: Value | None) -> Hashable:
    if value is None or value.constant is None:
        return id(value)
    if value.constant.nbytes > _COMPARED:
        return id(value.constant)
    return (value.dtype, attribute_key(value.constant))


def _values_key(values: Sequence[Value | None]) -> Hashable:
    return tuple(map(_value_key, values))


_KEYS: dict[type[Node], Callable[[Any], Hashable | None]] = {
    Call: _call_key,
    MakeTuple: lambda n: ("tuple", _values_key(n.items)),
    Project: lambda n: ("project", id(n.value), n.index),
    Construct: lambda n: (n.data_type, n.constructor, _values_key(n.args)),
}
