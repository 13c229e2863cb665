"""Rewrites a function by a table of rules, in one walk from top to bottom."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from tilewright.graph.ir import Binding, Call, Function, Graph, Value
from tilewright.graph.ir.types import STRING, TensorType
from tilewright.graph.rewriting.rewrite import Rewriter
from tilewright.graph.rules.site import Makers, Site
from tilewright.graph.sizes.conditions import open_conditions
from tilewright.support.errors import UserError

Rule = Callable[[Site], Value | None]
#: Most rules that are applied to one call in succession.
_DEEP: Final = 64


class RuleRewriter(Rewriter):
    """Calls that a rule emits are rewritten themselves before later calls see them."""

    def __init__(self, function: Function, rules_for: Callable[[str], Iterable[Rule]]) -> None:
        super().__init__()
        self._rules_for = rules_for
        self._makers = Makers(function)
        self._depth = 0

    def enter(self, graph: Graph) -> None:
        self._makers.enter(graph)

    def leave(self, graph: Graph) -> None:
        del graph
        self._makers.leave()

    def visit(self, binding: Binding) -> Sequence[Binding]:
        done = self._rewritten(binding) if self._depth < _DEEP else None
        if done is not None:
            return done
        self._makers.add(binding)
        return (binding,)

    def _rewritten(self, binding: Binding) -> Sequence[Binding] | None:
        call = binding.expr
        if not isinstance(call, Call) or not call.op.pure or not _is_plain(binding):
            return None
        for rule in self._rules_for(call.op.name):
            site = Site(binding, call, self._makers)
            try:
                result = rule(site)
            except UserError:
                # The calls that it would emit have no valid types.
                continue
            if result is None or result.type != binding.outputs[0].type:
                continue
            made = site.bindings(result)
            if not self._loses_conditions(call, made, result):
                return self._replaced(binding, result, made)
        return None

    def _loses_conditions(self, call: Call, made: Sequence[Binding], result: Value) -> bool:
        """Whether a condition of a call, or of its operands' makers, would no longer be checked."""
        used = {result, *(a for b in made for a in b.expr.args)}
        makers = (self._makers.call_of(a) for a in call.args if a not in used)
        asked = {c for k in (call, *makers) if k is not None for c, _ in open_conditions(k)}
        if not asked:
            return False
        calls = [b.expr for b in made if isinstance(b.expr, Call)]
        return not asked <= {c for k in calls for c, _ in open_conditions(k)}

    def _replaced(
        self, binding: Binding, result: Value, made: Sequence[Binding]
    ) -> Sequence[Binding]:
        old = binding.outputs[0]
        for new in made:
            self._makers.add_uses(new)
        self._makers.remove_uses(binding)
        if made and result in made[-1].outputs:
            result.name = old.name
            result.known = result.known if old.known is None else old.known
        self._depth += 1
        done = [b for new in made for b in self.visit(self.renewed(new))]
        self._depth -= 1
        current = self.current(result)
        self._makers.replace_uses(old, current)
        self.replace(old, current)
        return done


def _is_plain(binding: Binding) -> bool:
    """Whether it has one result, and all its values are tensors of numbers."""
    values = [*binding.outputs, *(a for a in binding.expr.args if a is not None)]
    return len(binding.outputs) == 1 and all(
        isinstance(v.type, TensorType) and v.type.dtype is not STRING for v in values
    )
