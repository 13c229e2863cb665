"""Values that share memory with others: views, parts, and operands computed inside a concat.

Operators declare what they share (`OpDef.view`, `part`, `item`, `join`): a reshape all of its
operand, a slice a part of it, a concat a whole that its operands are computed in, `sequence_at` an
item of a list.
"""

from __future__ import annotations

from typing import NamedTuple

from tilewright.graph.ir import Binding, Call, Fused, Graph, If, Value
from tilewright.ir import Expr


def is_shared(binding: Binding) -> bool:
    """Whether the result is the memory of the operand, or a part of it."""
    call = binding.expr
    is_item = isinstance(call, Call) and call.op.is_item(call.args)
    return binding.is_view or is_item or part_offset(binding) is not None


def part_offset(binding: Binding) -> Expr | None:
    """Where in its operand a result begins, in elements, if it is a contiguous part of it."""
    call = binding.expr
    if not isinstance(call, Call):
        return None
    return call.op.part_offset(binding.outputs[0], call.args, call.attrs)


# ---- joins --------------------------------------------------------------------------------------


class Spot(NamedTuple):
    """A position inside the result of a concat: its first element."""

    whole: Value
    offset: int


class Joins:
    """Where values of a graph are computed so that concats need not copy them.

    `spots` has those of values that kernels write; `views` those of concats whose parts are
    already adjacent inside the result of another one.
    """

    def __init__(self, graph: Graph) -> None:
        self.spots: dict[Value, Spot] = {}
        self.views: dict[Value, Spot] = {}
        self._made = {v for b in graph.body if writes(b) for v in b.outputs}
        self._roots = whole_views(graph)
        self._taken = {self._roots.get(r, r) for r in graph.results}
        concats = [b for b in graph.body if is_join(b)]
        # The last first: where results are concatenated again, later ones are longer.
        for binding in reversed(concats):
            self._place(binding)

    def is_free(self, binding: Binding) -> bool:
        """Whether nothing is left to do for a concat."""
        result = binding.outputs[0]
        if result in self.views:
            return True
        return is_join(binding) and all(
            self.spot_of(a) == Spot(result, at) for a, at in parts_of(binding)
        )

    def spot_of(self, value: Value) -> Spot | None:
        return self.spots.get(self._roots.get(value, value))

    def _place(self, binding: Binding) -> None:
        result, parts = binding.outputs[0], parts_of(binding)
        there = [self.spot_of(a) for a, _ in parts]
        first = there[0]
        if first is not None and result not in self._taken:
            expected = [Spot(first.whole, first.offset + at) for _, at in parts]
            if there == expected:
                self.views[result] = first
                return
        for value, at in parts:
            root = self._roots.get(value, value)
            if root in self._made and root not in self.spots and root not in self._taken:
                self.spots[root] = Spot(result, at)


def whole_views(graph: Graph) -> dict[Value, Value]:
    """The value of which each reshape of this graph is a view."""
    roots: dict[Value, Value] = {}
    for binding in graph.body:
        if binding.is_view:
            source = binding.expr.args[0]
            assert source is not None
            roots[binding.outputs[0]] = roots.get(source, source)
    return roots


def is_join(binding: Binding) -> bool:
    """Whether it is a concat whose parts are stored one after the other, with known sizes."""
    call = binding.expr
    return isinstance(call, Call) and call.op.is_join(binding.outputs[0], call.args, call.attrs)


def parts_of(binding: Binding) -> list[tuple[Value, int]]:
    """The operands of a join, each with the index of its first element."""
    parts: list[tuple[Value, int]] = []
    at = 0
    for value in binding.expr.args:
        assert value is not None
        parts.append((value, at))
        at += value.tensor.size or 0
    return parts


def writes(binding: Binding) -> bool:
    """Whether it writes its results, rather than sharing memory with operands."""
    if isinstance(binding.expr, Fused | If):
        return True
    call = binding.expr
    return isinstance(call, Call) and not is_shared(binding) and not call.op.scalar
