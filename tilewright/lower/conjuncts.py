"""Take conditions apart."""

from __future__ import annotations

from tilewright.ir import Binary, Expr, all_of


def conjuncts(condition: Expr) -> list[Expr]:
    """The conditions that `condition` is the conjunction of; none for `True`."""
    pending, found = [condition], list[Expr]()
    while pending:
        node = pending.pop()
        if isinstance(node, Binary) and node.op == "and":
            pending.extend((node.b, node.a))
        elif node is not all_of():
            found.append(node)
    return found
