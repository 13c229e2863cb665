"""In what the products of a graph are computed, in words."""

from __future__ import annotations

from collections import Counter

from tilewright.graph.context import PassContext
from tilewright.graph.definitions import FactTable, Kind
from tilewright.graph.ir import Call, Module, all_graphs


def precision_text(module: Module) -> str:
    """The precision that was asked for, and how many products are computed in which type."""
    asked = PassContext.current().precision
    if asked == "float32":
        return asked
    counts = ", ".join(f"{dtype} × {n}" for dtype, n in _products(module).items())
    return f"{asked} (products: {counts or 'none'})"


def _products(module: Module) -> dict[str, int]:
    facts, found = FactTable(), Counter[str]()
    for graph in all_graphs(module.main):
        for binding in graph.body:
            call = binding.expr
            if not isinstance(call, Call) or not call.args or call.args[0] is None:
                continue
            if facts(call, [v.type for v in binding.outputs]).kind is Kind.CONTRACTION:
                found[call.args[0].dtype.name] += 1
    return dict(found.most_common())
