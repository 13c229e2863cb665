"""Expands operators that are defined by other operators, until each left has loops of its own.

y = flatten(x)       -->     y = reshape(x, shape=[n, 12])
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.graph.builder import Builder
from tilewright.graph.ir import Binding, Call, Function, Module
from tilewright.graph.rewrite import Rewriter


def legalize(module: Module) -> Module:
    """The module without operators that only have a decomposition."""
    return module.map(lambda f: _Legalizer().graph(f))


class _Legalizer(Rewriter):
    def visit(self, binding: Binding) -> Sequence[Binding]:
        call = binding.expr
        if not isinstance(call, Call) or call.op.how != "decompose":
            return (binding,)
        expanded = _expanded(binding, call)
        body = [b for made in expanded.body for b in self.visit(self.renewed(made))]
        for old, new in zip(binding.outputs, expanded.results, strict=True):
            if not new.is_constant and new not in call.args:
                new.name = old.name
            self.replace(old, self.current(new))
        return body


def _expanded(binding: Binding, call: Call) -> Function:
    builder = Builder()
    builder.origin = binding.origin
    for value in call.args:
        if value is not None:
            # Decompositions may use operators on their operands.
            builder.own(value)
    builder.output(*call.op.expand(builder, call.args, call.attrs))
    return builder.function()
