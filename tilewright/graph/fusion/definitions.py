"""Classifies the loops of a call by its definition: fusion depends on this, not on names.

map           an element of the result needs the same element of each operand (or broadcasts it,
              or uses it as an index into a small table)
injective     it needs one other element of an operand, or selects between some
reduction     it combines many, in a loop or unrolled
contraction   it sums products of two operands
opaque        statements of its own, a recurrence, or no definition at all
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from math import prod
from typing import Any, Final, NamedTuple

from tilewright.graph.ir import Call, Value
from tilewright.graph.ir.attributes import attribute_key
from tilewright.graph.ir.types import STRING, TensorType, Type
from tilewright.graph.rewriting.context import PassContext
from tilewright.ir import (
    Binary,
    Const,
    Expr,
    Load,
    Select,
    Var,
    const,
    cost_of,
    free_vars,
    map_expr,
    product_of_loads,
    walk_expr,
)
from tilewright.ir import Call as CallExpr
from tilewright.tensor import te

#: Most elements of a table that stays in registers, or at least in the nearest cache.
_TABLE: Final = 256


class LoopKind(IntEnum):
    MAP = 0
    INJECTIVE = 1
    REDUCTION = 2
    CONTRACTION = 3
    OPAQUE = 4


class Facts(NamedTuple):
    """What is known of the loops of a call."""

    kind: LoopKind
    #: Roughly how many simple operations an element costs.
    cost: int = 0
    #: Whether it is a copy that transposes: neighbours in the result are not neighbours in the
    #: operand.
    transposes: bool = False
    #: The same where the innermost axis is only a part of another index, as in blocked layouts.
    gathers: bool = False
    #: Whether it is a map with NumPy's broadcasting and the same formula at every position.
    aligned: bool = False
    #: Whether elements of the result are unchanged elements of operands, or constants.
    moves: bool = False


OPAQUE = Facts(LoopKind.OPAQUE)


class FactTable:
    """Facts about calls. Equal calls on operands of equal types are analysed once per context of
    passes, since most are the same before and after each pass."""

    def __init__(self) -> None:
        remembered = PassContext.current().remembered
        # Keys name expressions by identity, so the attributes that hold them are kept alive.
        self._found: dict[Any, tuple[Facts, Any]] = remembered.setdefault("facts", {})

    def __call__(self, call: Call, types: Sequence[Type]) -> Facts:
        # Impure calls must not be computed twice, which inlining may do.
        if call.op.how != "compute" or not call.op.pure or not _on_tensors(call, types):
            return OPAQUE
        key = (call_key(call), *(None if a is None else a.type for a in call.args))
        found = self._found.get(key)
        if found is None:
            facts = facts_of(*_defined(call, types))
            found = self._found[key] = facts, tuple(call.attrs.values())
        return found[0]


def call_key(call: Call) -> Any:
    """Equal for calls of the same operator with the same attributes."""
    return (call.op.name, tuple(attribute_key(v) for v in call.attrs.values()))


def define(call: Call, tensors: Mapping[Value, te.Tensor], types: Sequence[Type]) -> Any:
    """The results of a call on tensors that stand for its operands."""
    args = [None if a is None else tensors[a] for a in call.args]
    return call.op.define(args, call.attrs, tuple(types))


def placeholder(value: Value) -> te.Tensor:
    """A tensor that stands for a value."""
    return te.placeholder(value.shape, value.dtype, value.name)


def definitions(outputs: Iterable[te.Tensor], given: Iterable[te.Tensor]) -> list[te.Definition]:
    """All definitions behind `outputs`, each after those it reads."""
    known = set(given)
    done: dict[te.Definition, None] = {}
    pending = [t.op for t in reversed(list(outputs)) if t not in known]
    while pending:
        op = pending[-1]
        missing = [t.op for t in op.inputs if t not in known and t.op not in done]
        if op in done or not missing:
            done.setdefault(op)
            pending.pop()
        else:
            pending.extend(reversed(missing))
    return list(done)


def _on_tensors(call: Call, types: Sequence[Type]) -> bool:
    every = [*types, *(a.type for a in call.args if a is not None)]
    return all(isinstance(t, TensorType) and t.dtype is not STRING for t in every)


def _defined(call: Call, types: Sequence[Type]) -> tuple[Any, list[te.Tensor]]:
    operands = dict.fromkeys(a for a in call.args if a is not None)
    tensors = {v: placeholder(v) for v in operands}
    return define(call, tensors, types), list(tensors.values())


def facts_of(outputs: Sequence[te.Tensor], given: Sequence[te.Tensor]) -> Facts:
    """What the definitions from `given` to `outputs` do."""
    ops = definitions(outputs, given)
    computes = [op for op in ops if isinstance(op, te.Compute)]
    if len(computes) != len(ops):
        return OPAQUE
    kind = max((_kind(op) for op in computes), default=LoopKind.MAP)
    cost = sum(cost_of(v) for op in computes for v in op.values)
    transposes = kind is LoopKind.INJECTIVE and any(_transposes(op) for op in computes)
    gathers = kind is LoopKind.INJECTIVE and any(_gathers(op) for op in computes)
    aligned = kind is LoopKind.MAP and bool(given) and all(_is_aligned(op) for op in computes)
    return Facts(kind, cost, transposes, gathers, aligned, all(map(_moves, computes)))


def work_of(call: Call, types: Sequence[Type]) -> int:
    """How many elements a call of known shapes adds up; 0 where it adds up none."""
    static = all(isinstance(t, TensorType) and t.is_static for t in types)
    if call.op.how != "compute" or not static or not _on_tensors(call, types):
        return 0
    ops = definitions(*_defined(call, types))
    return sum(_instances(op) for op in ops if isinstance(op, te.Compute) and op.reduced_axes)


def _instances(op: te.Compute) -> int:
    extents = [*op.shape, *(a.extent for a in op.reduced_axes)]
    return prod(int(e.value) if isinstance(e, Const) else 1 for e in extents)


def _kind(op: te.Compute) -> LoopKind:
    if op.reduction is not None:
        return LoopKind.CONTRACTION if is_contraction(op) else LoopKind.REDUCTION
    if all(_reads_own(load, op) or _looks_up(load, op) for load in _loads(op)):
        return LoopKind.MAP
    return LoopKind.REDUCTION if sums_by_place(op) else LoopKind.INJECTIVE


def is_contraction(op: te.Definition) -> bool:
    """Whether elements are sums of products of two operands."""
    if not isinstance(op, te.Compute) or op.reduction is None or len(op.values) != 1:
        return False
    return product_of_loads(op.values[0]) is not None


def sums_by_place(op: te.Compute) -> bool:
    """Whether the sum depends on the position: a product with a fixed matrix, written out as in
    Winograd's transforms."""
    return op.reduction is None and any(_is_chosen_sum(v) for v in op.values)


def _is_chosen_sum(value: Expr) -> bool:
    if not isinstance(value, Select) or not isinstance(value.condition, Binary):
        return False
    is_chosen = value.condition.op == "eq"
    return is_chosen and (_is_sum(value.a) or _is_sum(value.b) or _is_chosen_sum(value.b))


def _is_sum(value: Expr) -> bool:
    if isinstance(value, CallExpr):
        return value.name == "fma"
    return isinstance(value, Binary) and value.op in ("add", "sub")


def _loads(op: te.Compute) -> Iterator[Load]:
    return (e for value in op.values for e in walk_expr(value) if isinstance(e, Load))


def _reads_own(load: Load, op: te.Compute) -> bool:
    """Whether it reads at the definition's own axes: all of them or a subset, in order."""
    left = list(op.axes)
    for index in load.indices:
        axis = _own_axis(index)
        if axis is None and index is not const(0):
            return False
        if axis is not None and axis not in left:
            return False
        if axis is not None:
            # Axes in another order are a transpose.
            left = left[left.index(axis) + 1 :]
    return True


def _looks_up(load: Load, op: te.Compute) -> bool:
    """Whether it reads a small table at an index that depends on loaded elements alone."""
    sizes = [d.value for d in load.buffer.shape if isinstance(d, Const)]
    is_small = len(sizes) == len(load.buffer.shape) and prod(sizes) <= _TABLE
    return is_small and not any(free_vars(_without_loads(i)) & set(op.axes) for i in load.indices)


def _moves(op: te.Compute) -> bool:
    """Whether no floats are computed: they are loaded, and selected."""
    return op.reduction is None and all(_is_moved(e) for v in op.values for e in walk_expr(v))


def _is_moved(e: Expr) -> bool:
    if isinstance(e, Load | Select | Const):
        return True
    operands = (e.a, e.b) if isinstance(e, Binary) else ()
    return not any(part.dtype.is_float for part in (e, *operands))


def _is_aligned(op: te.Compute) -> bool:
    """Whether loads are at the last of the own axes, and nothing else depends on the axes."""
    return all(_reads_last(load, op) for load in _loads(op)) and not any(
        free_vars(_without_loads(v)) & set(op.axes) for v in op.values
    )


def _reads_last(load: Load, op: te.Compute) -> bool:
    last = op.axes[len(op.axes) - len(load.indices) :]
    return len(last) == len(load.indices) and all(
        index is const(0) or _own_axis(index) is axis
        for index, axis in zip(load.indices, last, strict=True)
    )


def _without_loads(value: Expr) -> Expr:
    return map_expr(value, lambda e: const(0, e.dtype) if isinstance(e, Load) else None, {})


def _own_axis(index: Expr) -> Var | None:
    # Where a dimension may be broadcast, a select chooses between 0 and the index.
    if isinstance(index, Select) and index.a is const(0):
        index = index.b
    return index if isinstance(index, Var) else None


def _transposes(op: te.Compute) -> bool:
    if len(op.values) != 1 or not isinstance(op.values[0], Load) or not op.axes:
        return False
    load = op.values[0]
    inner, extent = op.axes[-1], op.shape[-1]
    is_long = not isinstance(extent, Const) or extent.value > 1
    return (
        is_long and bool(load.indices) and load.indices[-1] is not inner and inner in load.indices
    )


def _gathers(op: te.Compute) -> bool:
    if len(op.values) != 1 or not isinstance(op.values[0], Load) or not op.axes:
        return False
    walked = [op.axes[-1] in free_vars(i) for i in op.values[0].indices]
    return any(walked) and not walked[-1]
