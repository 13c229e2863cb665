"""Factors of TF32, rounded by the kernels that compute them.

    y = relu(conv(x, w, b))                  y is multiplied by others
    -->
    def group():
        c = conv(x, w rounded, b)
        return first_bits(relu(c))
    y = fused(group)

Instructions take the first bits of their operands and drop the others, which makes every factor a
little smaller: in a deep network that adds up to percents. So kernels round results that products
read, and constant factors are rounded once. Inputs and outputs of a graph stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.graph.building.builder import Builder
from tilewright.graph.fusion.definitions import FactTable
from tilewright.graph.fusion.sharing import Joins
from tilewright.graph.ir import Binding, Call, Fused, Graph, Value
from tilewright.graph.ir.types import known_dim
from tilewright.graph.ops.forms.first_bits import first_bits_reference
from tilewright.graph.precision.stored import (
    FLOAT32,
    KernelCalls,
    carries,
    is_product,
    kernel_of,
    multiplied_values,
)
from tilewright.graph.rewriting.rewrite import grouped


def with_rounded_factors(graph: Graph, facts: FactTable) -> list[Binding]:
    """The bindings of a graph, with factors of products rounded to the bits that are used."""
    return list(_Writer(graph, facts).body())


class _Writer:
    def __init__(self, graph: Graph, facts: FactTable) -> None:
        self._graph, self._facts, self._joins = graph, facts, Joins(graph)
        #: The values that kernels are to round.
        self._multiplied = multiplied_values(graph, facts)
        self._constants: dict[Value, Value] = {}

    def body(self) -> Iterator[Binding]:
        for binding in self._graph.body:
            kernel = None if carries(binding, self._joins) else kernel_of(binding, self._facts)
            yield self._other(binding) if kernel is None else self._kernel(binding, kernel)

    def _other(self, binding: Binding) -> Binding:
        expr = binding.expr
        if isinstance(expr, Fused) or not expr.graphs:
            return binding
        inner = [g.with_(with_rounded_factors(g, self._facts)) for g in expr.graphs]
        return Binding(binding.outputs, expr.with_graphs(inner), binding.origin)

    def _kernel(self, binding: Binding, kernel: KernelCalls) -> Binding:
        group = binding if isinstance(binding.expr, Fused) else grouped([binding], binding.outputs)
        graph, made = group.expr.graphs[0], Builder()
        made.origin = binding.origin
        own, rounded = {v for b in graph.body for v in b.outputs}, dict[Value, Value]()
        is_changed = False
        for inner, facts in zip(graph.body, kernel.facts, strict=True):
            call = inner.expr
            assert isinstance(call, Call)
            args = [*call.args]
            if is_product(call, facts) and not _is_by_channel(call):
                args[:2] = [self._factor(a, own, rounded, made) for a in args[:2]]
            is_changed |= any(a is not b for a, b in zip(args, call.args, strict=True))
            made.bind_made(Binding(inner.outputs, call.with_args(args), inner.origin))
        results = [*graph.results]
        if not self._is_rounded(kernel):
            for k, value in enumerate(binding.outputs):
                if value in self._multiplied:
                    results[k] = made.emit("first_bits", results[k])
                    is_changed = True
        if not is_changed:
            return binding
        return Binding(
            binding.outputs, Fused(Graph((), made.function().body, results)), binding.origin
        )

    def _is_rounded(self, kernel: KernelCalls) -> bool:
        """Whether a kernel only moves values that were rounded before."""
        floats = [v for v in kernel.operands if v.dtype is FLOAT32]
        return kernel.moves and all(v in self._multiplied for v in floats)

    def _factor(
        self, value: Value | None, own: set[Value], rounded: dict[Value, Value], made: Builder
    ) -> Value | None:
        """A factor as a product reads it: constants and this kernel's own values are rounded."""
        if value is None or value.dtype is not FLOAT32:
            return value
        if value.constant is not None:
            if value not in self._constants:
                array = first_bits_reference(value.constant)
                self._constants[value] = Value(value.name, value.type, array)
            return self._constants[value]
        if value not in own:
            return value
        if value not in rounded:
            rounded[value] = made.emit("first_bits", value)
        return rounded[value]


def _is_by_channel(call: Call) -> bool:
    """Whether it is a depthwise convolution, which uses no tensor instructions."""
    weight, groups = call.args[1], call.attrs.get("groups", 1)
    return groups != 1 and weight is not None and known_dim(weight.shape[0]) == groups
