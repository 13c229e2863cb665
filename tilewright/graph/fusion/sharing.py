"""Values that are memory of others: views, parts, and what is put together where it is computed.

reshape      all of the operand's memory
slice        a part of it, where that is in one piece: all axes before the last sliced one are 1
concat       a whole that its parts are computed right into, where each is in one piece
sequence_at  an item of a list
"""

from __future__ import annotations

from typing import Final, NamedTuple

from tilewright.arith import simplify
from tilewright.graph.ir import Binding, Call, Fused, Graph, If, Value
from tilewright.graph.ir.types import TensorType, known_dim, product
from tilewright.graph.sizes.axes import axis_of
from tilewright.ir import Expr, const

_LISTED: Final = frozenset({"sequence_at", "optional_get", "optional"})


def is_shared(binding: Binding) -> bool:
    """Whether the result is memory of the operand, or a part of it."""
    return binding.is_view or _is_in_list(binding) or part_offset(binding) is not None


def _is_in_list(binding: Binding) -> bool:
    """Whether the result is an item of the sequence or optional that is the operand, or is it."""
    call = binding.expr
    if not isinstance(call, Call) or call.op.name not in _LISTED:
        return False
    source = call.args[0]
    # A tensor is copied into an optional.
    return call.op.name != "optional" or not isinstance(source and source.type, TensorType)


def part_offset(binding: Binding) -> Expr | None:
    """Where in its operand a slice begins, in elements, if it is in one piece."""
    call = binding.expr
    if not isinstance(call, Call) or call.op.name != "slice":
        return None
    source, result = call.args[0], binding.outputs[0]
    if source is None or source.is_constant or source.dtype.bits < 8:
        return None
    starts = _starts(call, source, result)
    if starts is None:
        return None
    cut = [k for k in range(source.ndim) if source.shape[k] is not result.shape[k]]
    if any(known_dim(d) != 1 for d in result.shape[: max(cut, default=0)]):
        return None
    offset: Expr = const(0)
    for axis, start in starts.items():
        offset = offset + start * product(source.shape[axis + 1 :])
    return simplify(offset)


def _starts(call: Call, source: Value, result: Value) -> dict[int, Expr] | None:
    from tilewright.graph.ops.tensor.slice import spans_of

    spans = spans_of(source, **call.attrs)
    if any(s.step != 1 and known_dim(result.shape[k]) != 1 for k, s in spans.items()):
        return None
    return {k: s.start for k, s in spans.items()}


# ---- joins --------------------------------------------------------------------------------------


class Spot(NamedTuple):
    """A place inside the result of a concat: from an element on."""

    whole: Value
    offset: int


class Joins:
    """Where values of a graph are computed so that concats need not copy them.

    `spots` are those of values that a kernel writes; `views` those of concats whose parts stand in
    a row inside another one already.
    """

    def __init__(self, graph: Graph) -> None:
        self.spots: dict[Value, Spot] = {}
        self.views: dict[Value, Spot] = {}
        self._made = {v for b in graph.body if writes(b) for v in b.outputs}
        self._roots = whole_views(graph)
        self._taken = {self._roots.get(r, r) for r in graph.results}
        concats = [b for b in graph.body if is_join(b)]
        # Longer ones come later, where parts are put together again and again.
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
    """The value that each reshape of this graph shows under another shape."""
    roots: dict[Value, Value] = {}
    for binding in graph.body:
        if binding.is_view:
            source = binding.expr.args[0]
            assert source is not None
            roots[binding.outputs[0]] = roots.get(source, source)
    return roots


def is_join(binding: Binding) -> bool:
    """Whether it is a concat whose parts lie one after the other, in sizes that are known."""
    call = binding.expr
    if not isinstance(call, Call) or call.op.name != "concat":
        return False
    result = binding.outputs[0]
    axis = axis_of(call.attrs["axis"], result.ndim)
    static = isinstance(result.type, TensorType) and result.type.is_static
    return (
        static
        and result.dtype.bits >= 8
        and all(known_dim(d) == 1 for d in result.shape[:axis])
        and all(a is not None and a.tensor.is_static for a in call.args)
    )


def parts_of(binding: Binding) -> list[tuple[Value, int]]:
    """The operands of a join, each with the element at which it begins."""
    parts: list[tuple[Value, int]] = []
    at = 0
    for value in binding.expr.args:
        assert value is not None
        parts.append((value, at))
        at += value.tensor.size or 0
    return parts


def writes(binding: Binding) -> bool:
    """Whether its results go to fresh memory, wherever that may be."""
    if isinstance(binding.expr, Fused | If):
        return True
    call = binding.expr
    return isinstance(call, Call) and not is_shared(binding) and call.op.name != "dims"
