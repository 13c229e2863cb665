"""A description of the types in which the products of a graph are computed."""

from __future__ import annotations

from collections import Counter

from tilewright.graph.fusion.definitions import FactTable, LoopKind
from tilewright.graph.ir import Binding, Call, Module, Value, all_graphs
from tilewright.graph.ir.types import TensorType
from tilewright.graph.ops.recurrent.recurrent import SCANS
from tilewright.graph.rewriting.context import PassContext


def precision_text(module: Module) -> str:
    """The chosen precision, and how many products are computed in which type."""
    asked = PassContext.current().precision
    if asked == "float32" and not _has_bytes(module):
        return asked
    counts = ", ".join(f"{dtype} × {n}" for dtype, n in _products(module).items())
    return f"{asked} (products: {counts or 'none'})"


def _has_bytes(module: Module) -> bool:
    """Whether there are tensors of bytes: the model itself may be quantized."""
    calls = (b.expr for g in all_graphs(module.main) for b in g.body if isinstance(b.expr, Call))
    operands = (a for call in calls for a in call.args if a is not None)
    types = (a.type for a in operands)
    return any(
        isinstance(t, TensorType) and t.dtype.bits == 8 and t.dtype.is_integer for t in types
    )


def _products(module: Module) -> dict[str, int]:
    facts, found = FactTable(), Counter[str]()
    for graph in all_graphs(module.main):
        for binding in graph.body:
            factor = _factor(binding, facts)
            if factor is not None:
                found[factor.dtype.name] += 1
    return dict(found.most_common())


def _factor(binding: Binding, facts: FactTable) -> Value | None:
    """A factor of the products that a call computes, if any; for a scan, the states' weights."""
    call = binding.expr
    if not isinstance(call, Call) or not call.args:
        return None
    if call.op.name in SCANS:
        return call.args[1]
    kind = facts(call, [v.type for v in binding.outputs]).kind
    return call.args[0] if kind is LoopKind.CONTRACTION else None
