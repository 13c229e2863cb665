"""The loop function of a group of calls, composed of their compute definitions.

Cheap definitions are inlined into their readers here, before there are loops: long chains become
one formula without a schedule having to inline them one by one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

import numpy as np

from tilewright.graph.fusion.definitions import (
    call_key,
    define,
    definitions,
    is_contraction,
    placeholder,
    sums_by_place,
)
from tilewright.graph.fusion.own_sizes import with_own_sizes
from tilewright.graph.ir import Binding, Call, Fused, Graph, Node, Value
from tilewright.graph.ir.types import TensorType
from tilewright.graph.sizes.naturals import is_signed
from tilewright.ir import (
    Buffer,
    Expr,
    Function,
    Load,
    Select,
    Var,
    free_vars,
    is_cheap,
    map_expr,
    structural_hash,
    substitute,
    symbolic_dims,
    walk_expr,
)
from tilewright.support.errors import InternalError
from tilewright.support.faults import during
from tilewright.tensor import te

_NAME_LENGTH: Final = 48
#: Integers up to this, and halves, are written into the formulas that use them; so are powers of
#: two, since multiplications by them are shifts.
_SMALL: Final = 4


class KernelCall(NamedTuple):
    """A call of a loop function: the values it reads and writes, and the numbers it takes."""

    function: Function
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    #: The function's scalar parameters, then its dimensions, as expressions of the caller.
    numbers: tuple[Expr, ...]
    #: Indices of parameters that are not passed, and constants that are passed after the others.
    dropped: frozenset[int] = frozenset()
    added: tuple[Value, ...] = ()

    def arguments(self) -> list[Value | Expr]:
        """The arguments of the kernel, in order: the parameters, then the dimensions."""
        values, numbers = iter((*self.inputs, *self.outputs)), iter(self.numbers)
        params = self.function.params
        own = [next(values) if isinstance(p, Buffer) else next(numbers) for p in params]
        kept = [a for k, a in enumerate(own) if k not in self.dropped]
        return [*kept, *self.added, *numbers]


class KernelTable:
    """The kernel calls of a program; equal groups share one loop function."""

    def __init__(self) -> None:
        self.functions: dict[str, Function] = {}
        self._by_key: dict[Any, tuple[Function, tuple[Expr, ...]]] = {}

    def __call__(self, binding: Binding) -> KernelCall:
        """The kernel that a binding calls."""
        with during("node", binding.label):
            return self._call(binding)

    def _call(self, binding: Binding) -> KernelCall:
        group = _group_of(binding)
        key = _key(group)
        if key not in self._by_key:
            own = _marked(_loops(_generic(group)), _operands(group))
            # Groups with one key have the same dimensions; groups that share loops may not.
            numbers = tuple(_numbers(own, [*_operands(group), *group.outputs]))
            self._by_key[key] = self._shared(own, _hint(group)), numbers
        function, numbers = self._by_key[key]
        return KernelCall(function, _operands(group), binding.outputs, numbers)

    def _shared(self, function: Function, hint: str) -> Function:
        name = f"{hint}_{structural_hash(function, with_name=False)[:12]}"
        return self.functions.setdefault(name, replace(function, name=name))


def _marked(function: Function, operands: Sequence[Value]) -> Function:
    """The function with the indices of its constant parameters, which can be packed once."""
    buffers = [k for k, p in enumerate(function.params) if isinstance(p, Buffer)]
    pairs = zip(buffers, operands, strict=False)
    constants = [k for k, v in pairs if v.constant is not None and v.constant.size > 1]
    if not constants:
        return function
    # Packing changes the numbers of parameters.
    left = {k: v for k, v in function.attrs.items() if k != "in_place"}
    return replace(function, attrs=left).with_attrs(constants=constants)


class _Group(NamedTuple):
    """Calls in order, the values they read from outside, and their results."""

    calls: tuple[Binding, ...]
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]


def _group_of(binding: Binding) -> _Group:
    graph = binding.expr.graph if isinstance(binding.expr, Fused) else None
    if graph is None:
        graph = Graph((), [binding], binding.outputs)
    made = {v for b in graph.body for v in b.outputs}
    used = dict.fromkeys(a for b in graph.body for a in b.expr.args if a is not None)
    return _Group(tuple(graph.body), tuple(v for v in used if v not in made), graph.results)


def _generic(group: _Group) -> _Group:
    """The group with its own symbols for sizes, where that makes it simpler."""
    if _has_own_loops(group.calls[0].expr):
        return group
    renewed = with_own_sizes(group.calls, group.inputs, group.outputs)
    if renewed is None:
        return group
    calls, own = renewed
    inputs, outputs = (tuple(own[v] for v in vs) for vs in (group.inputs, group.outputs))
    return _Group(tuple(calls), inputs, outputs)


def _operands(group: _Group) -> tuple[Value, ...]:
    """The values that the kernel takes."""
    first = group.calls[0].expr
    if _has_own_loops(first):
        return tuple(a for a in first.args if a is not None)
    return tuple(v for v in group.inputs if not _is_inlined_number(v))


def _has_own_loops(expr: Node) -> bool:
    return isinstance(expr, Call) and expr.op.how == "kernel"


def _key(group: _Group) -> Any:
    """Equal for groups that make the same loops, over the same symbolic dimensions."""
    numbers: dict[Value | None, int] = {None: -1}
    for value in (*group.inputs, *(v for b in group.calls for v in b.outputs)):
        numbers[value] = len(numbers)
    calls = [(_call_key(b), tuple(numbers[a] for a in b.expr.args)) for b in group.calls]
    inputs = [(v.type, v.is_constant, _inlined_number(v)) for v in group.inputs]
    return (tuple(calls), tuple(inputs), tuple(numbers[v] for v in group.outputs))


def _call_key(binding: Binding) -> Any:
    assert isinstance(binding.expr, Call)
    return call_key(binding.expr)


def _hint(group: _Group) -> str:
    names = [b.expr.op.name for b in group.calls if isinstance(b.expr, Call)]
    return "_".join(names)[:_NAME_LENGTH].rstrip("_")


# ---- loops --------------------------------------------------------------------------------------


def _loops(group: _Group) -> Function:
    first = group.calls[0].expr
    if isinstance(first, Call) and _has_own_loops(first):
        return first.op.loops(first.args, first.attrs)
    tensors = {v: _constant(v) if _is_inlined_number(v) else placeholder(v) for v in group.inputs}
    given = [tensors[v] for v in group.inputs if not _is_inlined_number(v)]
    for binding in group.calls:
        _define(binding, tensors)
    outputs = _inlined([_copied_if_operand(tensors[v], given) for v in group.outputs], given)
    function = te.function([*given, *_loose(outputs, given)], outputs, name="kernel")
    over = _written_over(outputs, given)
    return function.with_attrs(in_place=over) if over else function


def _written_over(outputs: Sequence[te.Tensor], given: Sequence[te.Tensor]) -> list[int]:
    """The operands, by number, that the result may overwrite: a map reads each of their elements
    only for the element of the result that takes its place."""
    ops = definitions(outputs, given)
    if len(ops) != 1 or len(outputs) != 1 or not isinstance(ops[0], te.Compute):
        return []
    op, out = ops[0], outputs[0]
    loads = [e for value in op.values for e in walk_expr(value) if isinstance(e, Load)]
    elsewhere = {e.buffer for e in loads if e.indices != op.axes}
    same = [t.dtype is out.dtype and t.shape == out.shape for t in given]
    found = [k for k, t in enumerate(given) if same[k] and t not in elsewhere]
    return [] if op.reduction is not None else found


def _define(binding: Binding, tensors: dict[Value, te.Tensor]) -> None:
    call = binding.expr
    assert isinstance(call, Call)
    if call.op.how != "compute":
        raise InternalError(f"{call.op.name} has no compute definition to be fused")
    results = define(call, tensors, [v.type for v in binding.outputs])
    for value, tensor in zip(binding.outputs, results, strict=True):
        if TensorType(tensor.dtype, tensor.shape) != value.type:
            raise InternalError(f"{call.op.name} defines {tensor!r}, not {value.type}")
        tensors[value] = tensor


def _copied_if_operand(tensor: te.Tensor, given: Sequence[te.Tensor]) -> te.Tensor:
    """A result that is an operand itself is copied."""
    if not any(tensor is g for g in given):
        return tensor
    return te.compute(tensor.shape, lambda *i: tensor[i], name="copy")


def _loose(outputs: Sequence[te.Tensor], given: Sequence[te.Tensor]) -> list[Var]:
    """Symbolic dimensions that the loops use and that are no parameter's extent."""
    used = {d for d in symbolic_dims(given) if is_signed(d)}
    for op in definitions(outputs, given):
        axes = {*op.axes}
        for tensor in op.outputs:
            used.update(*map(free_vars, tensor.shape))
        if isinstance(op, te.Compute):
            axes.update(a.var for a in op.reduced_axes)
            used.update(*(free_vars(a.extent) for a in op.reduced_axes))
            used.update(*(free_vars(v) - axes for v in op.values))
    tensors = [*given, *outputs]
    # One that may be negative counts as known only where it is an extent by itself.
    extents = {d for t in tensors for d in t.shape}
    shown = {d for d in symbolic_dims(tensors) if d in extents or not is_signed(d)}
    return sorted(used - shown, key=lambda v: v.serial)


def _numbers(function: Function, values: Sequence[Value]) -> list[Expr]:
    """The function's scalars and dimensions, as expressions of these values' dimensions.

    Loops that were written by hand have dimensions of their own, bound to those of the values.
    """
    taken: dict[Var, Expr] = {}
    for buffer, value in zip(function.buffers, values, strict=True):
        for own, dim in zip(buffer.shape, value.shape, strict=True):
            if isinstance(own, Var):
                taken.setdefault(own, dim)
    params = (*function.params, *function.dims)
    return [taken.get(p, p) for p in params if isinstance(p, Var)]


# ---- constants that are inlined -----------------------------------------------------------------


def _is_inlined_number(value: Value) -> bool:
    return _inlined_number(value) is not None


def _inlined_number(value: Value) -> Any:
    """The number, where a constant is one that is inlined: 0, 1, 2, ½ …"""
    array = value.constant
    if array is None or array.size != 1 or value.dtype.is_storage_only:
        return None
    number = array.reshape(()).item()
    if not isinstance(number, int | float):
        return None
    is_power = isinstance(number, int) and number > 0 and number.bit_count() == 1
    if not is_power and (not abs(number) <= _SMALL or number * 2 % 1):
        return None
    # 0.0 and -0.0 are equal in Python.
    return (number, bool(np.signbit(number)))


def _constant(value: Value) -> te.Tensor:
    assert value.constant is not None
    number = value.constant.reshape(()).item()
    return te.compute(value.shape, lambda *_: te.const(number, value.dtype), name=value.name)


# ---- inlining -----------------------------------------------------------------------------------


def _inlined(outputs: Sequence[te.Tensor], given: Sequence[te.Tensor]) -> list[te.Tensor]:
    """The outputs, with cheap definitions inlined into those that read them."""
    ops = definitions(outputs, given)
    if not all(isinstance(op, te.Compute) for op in ops):
        return list(outputs)
    readers = _readers(ops)
    wanted = set(outputs)
    made: dict[te.Tensor, te.Tensor] = {}
    formulas: dict[te.Tensor, te.Compute] = {}
    for op in ops:
        assert isinstance(op, te.Compute)
        renewed = _renewed(op, made, formulas)
        made.update(zip(op.outputs, renewed.outputs, strict=True))
        is_place = _follows_sums(renewed) and any(_looks_up(r, op) for r in readers[op])
        is_kept = is_place or not wanted.isdisjoint(op.outputs)
        if not is_kept and _is_inlined(renewed, readers[op]):
            formulas[renewed.outputs[0]] = renewed
    return [made[t] for t in outputs]


def _readers(ops: Sequence[te.Definition]) -> dict[te.Definition, list[te.Compute]]:
    readers: dict[te.Definition, list[te.Compute]] = {op: [] for op in ops}
    for op in ops:
        for source in dict.fromkeys(t.op for t in op.inputs):
            if source in readers and isinstance(op, te.Compute):
                readers[source].append(op)
    return readers


def _is_inlined(op: te.Compute, readers: Sequence[te.Compute]) -> bool:
    """Whether readers should compute it themselves."""
    if _combines(op) or len(op.outputs) != 1 or _is_read_often(op, readers):
        return False
    conditional = any(isinstance(e, Select) for e in walk_expr(op.values[0]))
    if conditional and any(map(_combines, readers)):
        return False
    return len(readers) <= 1 or is_cheap(op.values)


def _is_read_often(op: te.Compute, readers: Sequence[te.Compute]) -> bool:
    """Whether it is an epilogue of sums, or a copy, that readers would recompute many times.

    A product reads an element for each row or column; the epilogue of a product is computed in
    its tile.
    """
    if any(is_contraction(t.op) for t in op.inputs):
        return any(map(_combines, readers))
    is_slow = _follows_sums(op) or isinstance(op.values[0], Load)
    return is_slow and any(map(is_contraction, readers))


def _follows_sums(op: te.Compute) -> bool:
    sources = [t.op for t in op.inputs]
    return any(isinstance(t, te.Compute) and t.reduction is not None for t in sources)


def _looks_up(reader: te.Compute, op: te.Compute) -> bool:
    """Whether the reader uses elements of `op` as indices of a table. Schedules decide whether
    the table fits in registers beside the sums."""
    loads = (e for value in reader.values for e in walk_expr(value) if isinstance(e, Load))
    inner = (i for e in loads for index in e.indices for i in walk_expr(index))
    return any(isinstance(i, Load) and i.buffer in op.outputs for i in inner)


def _combines(op: te.Compute) -> bool:
    return op.reduction is not None or sums_by_place(op)


def _renewed(
    op: te.Compute,
    made: Mapping[te.Tensor, te.Tensor],
    formulas: Mapping[te.Tensor, te.Compute],
) -> te.Compute:
    """The definition over the tensors in `made`, with inlined formulas substituted."""

    def on_node(e: Expr) -> Expr | None:
        if not isinstance(e, Load) or not isinstance(e.buffer, te.Tensor):
            return None
        tensor = made.get(e.buffer, e.buffer)
        formula = formulas.get(tensor)
        if formula is not None:
            return substitute(formula.values[0], dict(zip(formula.axes, e.indices, strict=True)))
        return None if tensor is e.buffer else Load(tensor, e.indices, e.mask)

    memo: dict[Expr, Expr] = {}
    values = tuple(map_expr(v, on_node, memo) for v in op.values)
    if all(a is b for a, b in zip(values, op.values, strict=True)):
        return op
    body: Any = values
    if op.reduction is not None:
        r = op.reduction
        body = te.Reduction(r.name, values, r.axes, r.identities, r.combine, r.hidden)
    return te.Compute(op.name, op.shape, op.axes, body, op.attrs)
