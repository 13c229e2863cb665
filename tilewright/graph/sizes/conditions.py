"""The conditions of operators on symbolic dimensions, as far as they are not known to hold."""

from __future__ import annotations

from tilewright.graph.ir import Call
from tilewright.graph.sizes.naturals import simplify_size
from tilewright.ir import Const, Expr, as_expr


def open_conditions(call: Call) -> list[tuple[Expr, str]]:
    """Conditions that have to be checked when the program runs, and messages if they fail."""
    asked = [(simplify_size(as_expr(c)), m) for c, m in call.op.conditions(call.args, call.attrs)]
    return [(c, m) for c, m in asked if not (isinstance(c, Const) and c.value)]
