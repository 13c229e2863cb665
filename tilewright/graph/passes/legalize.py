"""Expands operators that are defined by other operators, until each left has loops of its own.

y = flatten(x)       -->     y = reshape(x, shape=[n, 12])

Conditions of an operator on symbolic dimensions are kept (`require`); its results keep their types.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.graph.building.builder import Builder
from tilewright.graph.ir import Binding, Call, Function, Module, Value
from tilewright.graph.ir.op import find_op
from tilewright.graph.ir.types import TensorType, substitute_type
from tilewright.graph.rewriting.rewrite import Rewriter
from tilewright.graph.sizes.conditions import open_conditions


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
            body += self._with_its_type(old, binding.origin)
        return body

    def _with_its_type(self, old: Value, origin: str) -> Sequence[Binding]:
        """Reshape the replacement of `old` to its type, where that writes sizes in another way."""
        new = self.current(old)
        wanted = substitute_type(old.type, self.dims)
        if not isinstance(wanted, TensorType) or wanted == new.type:
            return ()
        made = Value(old.name, wanted)
        self.values[old] = made
        return [Binding([made], Call(find_op("reshape"), [new], {"shape": wanted.shape}), origin)]


def _expanded(binding: Binding, call: Call) -> Function:
    builder = Builder()
    builder.origin = binding.origin
    for value in call.args:
        if value is not None:
            # Decompositions may apply operators to their operands.
            builder.own(value)
    builder.output(*call.op.expand(builder, _required(builder, call), call.attrs))
    return builder.function()


def _required(builder: Builder, call: Call) -> Sequence[Value | None]:
    """The operands; the first passes through `require` if there are conditions to check."""
    asked = open_conditions(call)
    if not asked:
        return call.args
    conditions, messages = zip(*asked, strict=True)
    named = [f"{call.op.name}: {m}" for m in messages]
    first = builder.emit("require", call.args[0], conditions=conditions, messages=named)
    return (first, *call.args[1:])
