"""Rewrites calls to narrower types by a table of rules, by operator.

A rule sees a call and writes its replacement into a `Writing`, or returns None to leave the call as
it is. The last call that it writes takes over the results, which are of the same types.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tilewright.graph.building.builder import Builder
from tilewright.graph.ir import Binding, Call, Graph, Value
from tilewright.graph.rewriting.rewrite import Rewriter

#: Values derived from others, by a description and the source.
Made = dict[tuple[str, Value], Sequence[Value]]


class Writing(Builder):
    """Where a rule writes; it knows the values derived so far in the graphs that are open."""

    def __init__(self, origin: str, made: Sequence[Made], makers: Mapping[Value, Call]) -> None:
        super().__init__()
        self.origin, self._made = origin, made
        #: The calls that computed values, before they were rewritten.
        self.makers = makers

    def once(
        self, what: str, value: Value, make: Callable[[Value], Sequence[Value]]
    ) -> Sequence[Value]:
        """The values that `make` derives from a value, shared by all calls that need them."""
        found = self.known(what, value)
        if found is None:
            found = self._made[-1][what, value] = make(value)
        return found

    def known(self, what: str, value: Value) -> Sequence[Value] | None:
        """The values derived from a value before."""
        key = (what, value)
        return next((known[key] for known in self._made if key in known), None)


Rule = Callable[[Call, Writing], Sequence[Value] | None]
Rules = Mapping[str, Rule]


class Narrower(Rewriter):
    """Rewrites graphs by rules."""

    def __init__(self, rules: Rules) -> None:
        super().__init__()
        self._rules = rules
        #: One for each graph that is open.
        self._made: list[Made] = []
        self._makers: dict[Value, Call] = {}

    def enter(self, graph: Graph) -> None:
        self._made.append({})

    def leave(self, graph: Graph) -> None:
        self._made.pop()

    def visit(self, binding: Binding) -> Sequence[Binding]:
        call = binding.expr
        if not isinstance(call, Call):
            return (binding,)
        self._makers.update(dict.fromkeys(binding.outputs, call))
        rule = self._rules.get(call.op.name)
        if rule is None:
            return (binding,)
        writing = Writing(binding.origin, self._made, self._makers)
        results = rule(call, writing)
        if results is None:
            return (binding,)
        writing.output(*results)
        *rest, last = writing.function().body
        return [*rest, Binding(binding.outputs, last.expr, last.origin)]
