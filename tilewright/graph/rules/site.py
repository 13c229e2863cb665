"""What a rule of algebra sees: one call, how its operands were made, and a way to emit others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Final

from tilewright.graph.building.builder import Builder
from tilewright.graph.fusion.definitions import Facts, FactTable
from tilewright.graph.ir import Binding, Call, Graph, Value, all_graphs
from tilewright.graph.ir.types import TensorType
from tilewright.ir import Expr

#: Most bytes of a constant that may be duplicated.
_SMALL: Final = 1 << 16


class Makers:
    """How values of a function are made, and how often they are used, while it is rewritten."""

    def __init__(self, function: Graph) -> None:
        self.facts = FactTable()
        self._made: dict[Value, Binding] = {}
        #: The graph in which each value is made: calls moved into a loop would run more often.
        self._home: dict[Value, int] = {}
        self._open: list[int] = []
        self._uses = Counter(_all_uses(function))
        arrays = (v.constant for v in self._uses if v.constant is not None)
        self._sharers = Counter(map(id, arrays))

    def enter(self, graph: Graph) -> None:
        self._open.append(id(graph))

    def leave(self) -> None:
        self._open.pop()

    def add(self, binding: Binding) -> None:
        for value in binding.outputs:
            self._made[value] = binding
            self._home[value] = self._open[-1]

    def add_uses(self, binding: Binding) -> None:
        """Count the values that a new binding uses."""
        self._uses.update(_args(binding))

    def remove_uses(self, binding: Binding) -> None:
        """Forget the values that a binding used, and those that only these used."""
        pending = [binding]
        while pending:
            for value in _args(pending.pop()):
                self._uses[value] -= 1
                made = self._made.get(value)
                if not self._uses[value] and made is not None and self.call_of(value):
                    pending.append(made)

    def replace_uses(self, old: Value, new: Value) -> None:
        """Count the uses of `old` as uses of `new`."""
        self._uses[new] += self._uses.pop(old, 0)

    def call_of(self, value: Value | None) -> Call | None:
        """The pure call of one result that made a value."""
        binding = None if value is None else self._made.get(value)
        if binding is None or not isinstance(binding.expr, Call) or len(binding.outputs) != 1:
            return None
        return binding.expr if binding.expr.op.pure else None

    def is_private(self, value: Value) -> bool:
        """Whether this graph made the value, and a single binding uses it."""
        return self._uses[value] == 1 and self.is_local(value)

    def may_change(self, constant: Value) -> bool:
        """Whether replacing it by another constant takes hardly any memory."""
        array = constant.constant
        assert array is not None
        alone = self._uses[constant] <= 1 and self._sharers[id(array)] <= 1
        return alone or array.nbytes <= _SMALL

    def is_local(self, value: Value) -> bool:
        """Whether the current graph makes it, not one around it."""
        return self._home.get(value) == self._open[-1]


class Site:
    """A call to be rewritten; `emit` makes the calls that take its place."""

    def __init__(self, binding: Binding, call: Call, makers: Makers) -> None:
        self.binding, self.call, self.makers = binding, call, makers
        self._builder = Builder()
        self._builder.origin = binding.origin

    # ---- looking --------------------------------------------------------------------------------

    @property
    def result(self) -> Value:
        return self.binding.outputs[0]

    @property
    def x(self) -> Value:
        """The first operand."""
        return self.arg(0)

    def arg(self, number: int) -> Value:
        value = self.call.args[number]
        assert value is not None
        return value

    @property
    def args(self) -> list[Value]:
        """The operands that are given."""
        return [a for a in self.call.args if a is not None]

    @property
    def attrs(self) -> dict[str, Any]:
        return self.call.attrs

    def attr(self, name: str) -> Any:
        return self.call.attrs[name]

    def channels(self, call: Call, axis: int) -> Expr:
        """The extent of an axis of a call's result."""
        type_ = call.op.infer(call.args, call.attrs)[0]
        assert isinstance(type_, TensorType)
        return type_.shape[axis]

    def made_by(self, value: Value | None, *names: str) -> Call | None:
        """The call that made a value, if its operator is one of these; any, if none is named."""
        call = self.makers.call_of(value)
        return call if call is not None and (not names or call.op.name in names) else None

    def private(self, value: Value | None, *names: str) -> Call | None:
        """The same, if nothing but this call uses the value."""
        call = self.made_by(value, *names)
        return call if value is not None and self.makers.is_private(value) else None

    def facts(self, call: Call, result: Value) -> Facts:
        return self.makers.facts(call, [result.type])

    def is_map(self, call: Call, result: Value) -> bool:
        """Whether it computes elements from those at the same position, broadcast as in NumPy."""
        return not speaks_of_places(call) and self.facts(call, result).aligned

    # ---- making ---------------------------------------------------------------------------------

    def emit(self, name: str, *args: Any, **attrs: Any) -> Value:
        return self._builder.emit(name, *args, **attrs)

    def again(self, call: Call, args: Sequence[Value | None], **attrs: Any) -> Value:
        """The same operator on other operands."""
        return self._builder.emit(call.op, *args, **(call.attrs | attrs))

    def constant(self, array: Any, like: Value | None = None) -> Value:
        """A constant, of the type and with the name of another where that is given."""
        if like is None:
            return self._builder.constant(array)
        return self._builder.constant(array, like.dtype, like.name)

    def bindings(self, result: Value) -> list[Binding]:
        """The emitted bindings that `result` needs."""
        function = self._builder.function()
        needed = {result}
        kept: list[Binding] = []
        for binding in reversed(function.body):
            if needed.intersection(binding.outputs):
                kept.append(binding)
                needed.update(_args(binding))
        return kept[::-1]


def number_in(value: Value | None) -> float | None:
    """The number in a constant of one element."""
    array = None if value is None else value.constant
    if array is None or array.dtype.kind not in "fiu" or array.size != 1:
        return None
    return float(array.reshape(()))


def speaks_of_places(call: Call) -> bool:
    """Whether attributes may be axes, shapes or the like, which depend on the operands' layout."""
    given = (v for v in call.attrs.values() if not isinstance(v, bool))
    return any(isinstance(v, int | tuple | Expr) for v in given)


def _args(binding: Binding) -> list[Value]:
    return [a for a in binding.expr.args if a is not None]


def _all_uses(function: Graph) -> Iterable[Value]:
    for graph in all_graphs(function):
        yield from graph.results
        for binding in graph.body:
            yield from _args(binding)
