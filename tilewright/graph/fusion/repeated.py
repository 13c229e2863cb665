"""Repeats copies for each of their readers, so that all can be fused with them.

    t = transpose(x, axes=[0, 2, 1, 3])         t0 = transpose(x, axes=[0, 2, 1, 3])
    a = slice(t, …)                     -->     a = slice(t0, …)
    b = cos(t)                                  t1 = transpose(x, axes=[0, 2, 1, 3])
                                                b = cos(t1)

A call that only moves elements becomes part of the indices of its reader, once it has a single one
(`fuse`). For GPUs, where a launch costs more than reading elements twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from tilewright.graph.fusion.definitions import Facts, LoopKind
from tilewright.graph.ir import Binding, Call, Graph, Value
from tilewright.graph.rewriting.rewrite import all_used

#: Most readers for which a copy is repeated.
_MOST_READERS: Final = 4


def with_own_copies(graph: Graph, facts: Callable[[Binding], Facts]) -> list[Binding]:
    """The bindings of a graph, with copies repeated for each of their readers."""
    return _Repeater(graph, facts).run(graph.body)


class _Repeater:
    """Goes from the last binding to the first: a copy's reader may have been repeated itself."""

    def __init__(self, graph: Graph, facts: Callable[[Binding], Facts]) -> None:
        self._facts, self._results = facts, set(graph.results)
        self._done: list[Binding] = []
        #: The finished bindings that read a value, by number.
        self._readers: dict[Value, list[int]] = {}

    def run(self, body: Sequence[Binding]) -> list[Binding]:
        for binding in reversed(body):
            if self._is_repeated(binding):
                self._repeat(binding)
            else:
                self._add(binding)
        return self._done[::-1]

    def _add(self, binding: Binding) -> None:
        for value in dict.fromkeys(all_used(binding)):
            self._readers.setdefault(value, []).append(len(self._done))
        self._done.append(binding)

    def _is_repeated(self, binding: Binding) -> bool:
        if len(binding.outputs) != 1 or binding.outputs[0] in self._results:
            return False
        readers = self._readers.get(binding.outputs[0], [])
        if not 1 < len(readers) <= _MOST_READERS:
            return False
        own = self._facts(binding)
        if own.kind is not LoopKind.INJECTIVE or not own.moves or own.transposes:
            return False
        return all(self._facts(self._done[k]).kind <= LoopKind.INJECTIVE for k in readers)

    def _repeat(self, binding: Binding) -> None:
        call, (value,) = binding.expr, binding.outputs
        assert isinstance(call, Call)
        first, *others = self._readers.pop(value)
        for k in others:
            own = Value(value.name, value.type)
            reader = self._done[k]
            assert isinstance(reader.expr, Call)
            args = [own if a is value else a for a in reader.expr.args]
            expr = Call(reader.expr.op, args, reader.expr.attrs)
            self._done[k] = Binding(reader.outputs, expr, reader.origin)
            self._add(Binding([own], Call(call.op, call.args, call.attrs), binding.origin))
        self._readers[value] = [first]
        self._add(binding)
