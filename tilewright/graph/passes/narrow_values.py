"""Stores values between kernels in narrower floats, where a `precision` asks for it.

precision="float16", "bf16"    products of such factors, summed in float32; kernels compute in
                               float32, and round what leaves them       (precision.kernels)
precision="tf32"               operands of products are rounded to the bits that these use, by the
                               kernel that computes them                 (precision.rounded)

For GPUs, whose kernels are mostly limited by memory. Runs after fusion, so that nothing is rounded
inside a kernel.
"""

from __future__ import annotations

from typing import TypeVar, cast

from tilewright.graph.fusion.definitions import FactTable
from tilewright.graph.ir import Binding, Graph, Module
from tilewright.graph.precision.kernels import with_narrow_values
from tilewright.graph.precision.rounded import with_rounded_factors
from tilewright.graph.precision.stored import stored_type
from tilewright.graph.rewriting.context import TF32, PassContext

AnyGraph = TypeVar("AnyGraph", bound=Graph)


def narrow_values(module: Module) -> Module:
    """The module with values between kernels in the type of the precision."""
    dtype, facts = stored_type(), FactTable()
    if dtype is None and PassContext.current().precision != TF32:
        return module

    def body(graph: Graph) -> list[Binding]:
        if dtype is None:
            return with_rounded_factors(graph, facts)
        return with_narrow_values(graph, dtype, facts)

    def narrow(graph: AnyGraph) -> AnyGraph:
        return cast("AnyGraph", graph.with_(body(graph)))

    return module.map(narrow)
