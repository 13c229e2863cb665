"""Which values between kernels are stored in a narrower type of floats.

A value of float32 that kernels write and kernels read is narrow if it comes from a product, through
kernels that keep its size, or if products multiply it. So values computed from indices, positions
and masks alone stay in float32, and so do means, variances and values computed from these. Inputs
and outputs of a graph, and values that others than kernels read or write, keep their types.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import prod
from typing import Final, NamedTuple

from tilewright.graph.fusion.definitions import Facts, FactTable, LoopKind
from tilewright.graph.fusion.sharing import Joins, is_shared
from tilewright.graph.ir import Binding, Call, Fused, Graph, Value
from tilewright.graph.ir.types import TensorType, known_dim
from tilewright.graph.layouts.images import count
from tilewright.graph.precision.products import PRODUCTS
from tilewright.graph.rewriting.context import PassContext
from tilewright.graph.rewriting.rewrite import all_used
from tilewright.ir import DType

FLOAT32: Final = DType.of("float32")
#: Sums of fewer products stay in float32: positions times frequencies, say, are arguments of
#: functions that change fast, so that rounding would show.
_LEAST_DEPTH: Final = 8
#: Results of reductions of at most this fraction of the operand stay in float32: they cost no
#: bandwidth.
_SMALL_PART: Final = 1 / 16


#: The types of values between kernels, by precision.
_TYPES: Final = {"float16": DType.of("float16"), "bf16": DType.of("bfloat16")}


def stored_type() -> DType | None:
    """The narrower type that the precision stores values in on GPUs, if any."""
    return _TYPES.get(PassContext.current().precision)


class KernelCalls(NamedTuple):
    """The calls that become one kernel, with what their loops do."""

    calls: Sequence[Binding]
    facts: Sequence[Facts]

    @property
    def operands(self) -> list[Value]:
        """The values that it reads."""
        made = {v for b in self.calls for v in b.outputs}
        used = dict.fromkeys(a for b in self.calls for a in b.expr.args if a is not None)
        return [v for v in used if v not in made]

    @property
    def factors(self) -> Iterator[Value]:
        """The operands of its products."""
        for binding, facts in zip(self.calls, self.facts, strict=True):
            if is_product(binding.expr, facts):
                yield from (a for a in binding.expr.args[:2] if a is not None)

    @property
    def moves(self) -> bool:
        """Whether it only moves elements."""
        return all(f.moves for f in self.facts)

    @property
    def reduces(self) -> bool:
        return any(f.kind is LoopKind.REDUCTION for f in self.facts)


def kernel_of(binding: Binding, facts: FactTable) -> KernelCalls | None:
    """The kernel that a binding calls, if all its calls have compute definitions."""
    expr = binding.expr
    calls = expr.graph.body if isinstance(expr, Fused) else [binding]
    found: list[Facts] = []
    for inner in calls:
        if not isinstance(inner.expr, Call):
            return None
        found.append(facts(inner.expr, [v.type for v in inner.outputs]))
    return None if any(f.kind is LoopKind.OPAQUE for f in found) else KernelCalls(calls, found)


def is_product(call: object, facts: Facts) -> bool:
    """Whether a call adds up enough products to be worth narrow factors."""
    if not isinstance(call, Call) or facts.kind is not LoopKind.CONTRACTION:
        return False
    is_pair = call.op.name != "einsum" or len(call.args) == 2
    return is_pair and _depth(call) >= _LEAST_DEPTH


def _depth(call: Call) -> int:
    """The number of terms in the sum for an element, or `_LEAST_DEPTH` where it is not known."""
    x, weight = call.args[:2]
    assert x is not None and weight is not None
    if call.op.name in PRODUCTS:
        summed = x.shape[-2:][0] if call.attrs.get("transpose_a") else x.shape[-1]
        return known_dim(summed) or _LEAST_DEPTH
    if call.op.name in ("conv", "conv_last"):
        return prod(known_dim(d) or _LEAST_DEPTH for d in weight.shape[1:])
    return _LEAST_DEPTH


def carries(binding: Binding, joins: Joins) -> bool:
    """Whether the results share the operands' memory, or the operands that of the result."""
    return isinstance(binding.expr, Call) and (is_shared(binding) or joins.is_free(binding))


def narrow_values(graph: Graph, facts: FactTable) -> set[Value]:
    """The values of a graph that are stored in a narrower type."""
    return _Values(graph, facts).found()


def multiplied_values(graph: Graph, facts: FactTable) -> set[Value]:
    """The values that kernels of a graph compute and products read, maybe after a move."""
    return _Values(graph, facts).multiplied()


class _Values:
    """Values that share memory count as one: the first of them stands for all."""

    def __init__(self, graph: Graph, facts: FactTable) -> None:
        self._same: dict[Value, Value] = {}
        self._kernels: list[tuple[Binding, KernelCalls]] = []
        self._narrow: set[Value] = set()
        self._readers: dict[Value, list[tuple[Binding, KernelCalls]]] = {}
        joins = Joins(graph)
        fixed = [*graph.params, *graph.results]
        for binding in graph.body:
            kernel = None if carries(binding, joins) else kernel_of(binding, facts)
            if kernel is not None:
                self._kernels.append((binding, kernel))
            elif carries(binding, joins):
                self._join([*binding.outputs, *all_used(binding)])
            else:
                fixed += [*binding.outputs, *all_used(binding)]
        for binding, kernel in self._kernels:
            for value in kernel.operands:
                self._readers.setdefault(self._first(value), []).append((binding, kernel))
        made = (v for b in graph.body for v in b.outputs)
        candidates = [v for v in made if _is_float32(v)]
        self._candidates = candidates
        odd = [v for v in self._same if not _is_float32(v) or v.is_constant]
        self._fixed = {self._first(v) for v in (*fixed, *odd)}

    def found(self) -> set[Value]:
        for _, kernel in self._kernels:
            self._mark(kernel.factors)
        before = -1
        while len(self._narrow) != before:
            before = len(self._narrow)
            for binding, kernel in self._kernels:
                if self._is_narrow(binding, kernel):
                    self._mark(v for v in binding.outputs if not self._is_only_reduced(v))
        return {v for v in self._candidates if self._first(v) in self._narrow}

    def multiplied(self) -> set[Value]:
        for _, kernel in self._kernels:
            self._mark(kernel.factors)
        # Later kernels first: the values that they move come from earlier ones.
        for binding, kernel in reversed(self._kernels):
            if kernel.moves and any(self._first(v) in self._narrow for v in binding.outputs):
                self._mark(kernel.operands)
        return {v for v in self._candidates if self._first(v) in self._narrow}

    def _is_narrow(self, binding: Binding, kernel: KernelCalls) -> bool:
        """Whether a kernel makes narrow values: by products, or from narrow values."""
        if any(True for _ in kernel.factors):
            return True
        sizes = [count(v.shape) for v in kernel.operands if self._first(v) in self._narrow]
        if not sizes:
            return False
        return not _makes_less(binding, kernel, max(sizes))

    def _is_only_reduced(self, value: Value) -> bool:
        """Whether it is computed for reductions alone, such as squares, which may be large."""
        readers = self._readers.get(self._first(value), ())
        size = count(value.shape)
        return bool(readers) and all(_makes_less(b, kernel, size) for b, kernel in readers)

    def _mark(self, values: Iterable[Value]) -> None:
        firsts = {self._first(v) for v in values if _is_float32(v) and not v.is_constant}
        self._narrow |= firsts - self._fixed

    def _join(self, values: Sequence[Value]) -> None:
        first = self._first(values[0])
        for value in values[1:]:
            self._same[self._first(value)] = first
        self._same[first] = first

    def _first(self, value: Value) -> Value:
        while self._same.get(value, value) is not value:
            value = self._same[value]
        return value


def _makes_less(binding: Binding, kernel: KernelCalls, size: float) -> bool:
    """Whether a kernel reduces `size` elements to a small fraction."""
    results = max(count(v.shape) for v in binding.outputs)
    return kernel.reduces and results <= _SMALL_PART * size


def _is_float32(value: Value) -> bool:
    return isinstance(value.type, TensorType) and value.dtype is FLOAT32
