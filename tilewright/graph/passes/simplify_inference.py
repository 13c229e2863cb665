"""Removes operators without effect at inference: identities, dropout, casts to the same type.

a = identity(x)
b = dropout(a)           -->     y = relu(x)
y = relu(b)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright.graph.ir import Binding, Call, MakeTuple, Module, Project, Value
from tilewright.graph.rewriting.rewrite import Rewriter


def simplify_inference(module: Module) -> Module:
    """The module without operators that return their operand unchanged."""
    return module.map(lambda f: _Simplifier().graph(f))


class _Simplifier(Rewriter):
    def __init__(self) -> None:
        super().__init__()
        self._tuples: dict[Value, MakeTuple] = {}

    def visit(self, binding: Binding) -> Sequence[Binding]:
        if isinstance(binding.expr, MakeTuple):
            self._tuples[binding.outputs[0]] = binding.expr
        same = self._same(binding)
        if same is None:
            return (binding,)
        self.replace(binding.outputs[0], same)
        return ()

    def _same(self, binding: Binding) -> Value | None:
        """The value that the only output of `binding` always equals."""
        expr = binding.expr
        if isinstance(expr, Project):
            made = self._tuples.get(expr.value)
            return made.items[expr.index] if made else None
        rule = _NOTHING.get(expr.op.name) if isinstance(expr, Call) else None
        return rule(expr) if rule is not None and isinstance(expr, Call) else None


def _operand(call: Call) -> Value | None:
    return call.args[0]


def _cast(call: Call) -> Value | None:
    operand = call.args[0]
    assert operand is not None
    return operand if operand.dtype is call.attrs["dtype"] else None


#: Operators that may return their first operand unchanged.
_NOTHING: dict[str, Callable[[Call], Value | None]] = {
    "identity": _operand,
    "dropout": _operand,
    "cast": _cast,
}
