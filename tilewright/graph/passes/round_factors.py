"""Rounds factors of products of TF32 where they are made, for GPUs (`precision.rounded`).

Runs after calls were put together to kernels, so that nothing is rounded inside of one in vain.
"""

from __future__ import annotations

from typing import TypeVar, cast

from tilewright.graph.fusion.definitions import FactTable
from tilewright.graph.ir import Graph, Module
from tilewright.graph.precision.rounded import with_rounded_factors
from tilewright.graph.rewriting.context import Pass
from tilewright.target import Target

AnyGraph = TypeVar("AnyGraph", bound=Graph)


def round_factors(target: Target) -> Pass:
    """The pass for a machine."""

    def round_factors(module: Module) -> Module:
        """The module with factors rounded, where products take the first bits of them."""
        if target.gpu is None or not target.gpu.tf32:
            return module
        facts = FactTable()

        def rounded(graph: AnyGraph) -> AnyGraph:
            return cast("AnyGraph", graph.with_(with_rounded_factors(graph, facts)))

        return module.map(rounded)

    return round_factors
