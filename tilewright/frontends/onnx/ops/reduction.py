"""Reductions and operators along an axis."""

from __future__ import annotations

from typing import Final

from tilewright.frontends.onnx.node import Node
from tilewright.frontends.onnx.table import converts
from tilewright.graph import Value

_REDUCTIONS: Final = {
    "ReduceL1": "l1",
    "ReduceL2": "l2",
    "ReduceLogSum": "log_sum",
    "ReduceLogSumExp": "log_sum_exp",
    "ReduceMax": "max",
    "ReduceMean": "mean",
    "ReduceMin": "min",
    "ReduceProd": "prod",
    "ReduceSum": "sum",
    "ReduceSumSquare": "sum_square",
}
#: The maximum of truth values is `any`, the minimum `all`.
_OF_BOOL: Final = {"ReduceMax": "any", "ReduceMin": "all"}


@converts(*_REDUCTIONS)
def reduction(n: Node) -> Value:
    axes = n.axes(1)
    if not axes and n.flag("noop_with_empty_axes"):
        # Nothing is reduced, but each element is still squared, or made absolute.
        axes = []
    elif not axes:
        axes = None
    op = _OF_BOOL.get(n.op, "") if n[0].dtype.is_bool else ""
    op = op or _REDUCTIONS[n.op]
    return n.builder.emit(op, n[0], axes=axes, keepdims=n.flag("keepdims", True))


@converts("ArgMax", "ArgMin")
def arg_extreme(n: Node) -> Value:
    return n.builder.emit(
        n.op.lower(),
        n[0],
        axis=n.integer("axis", 0),
        keepdims=n.flag("keepdims", True),
        last=n.flag("select_last_index"),
    )


@converts("CumSum", "CumProd")
def cumulative(n: Node) -> Value:
    return n.builder.emit(
        n.op.lower(),
        n[0],
        axis=n.number(1),
        exclusive=n.flag("exclusive"),
        reverse=n.flag("reverse"),
    )
