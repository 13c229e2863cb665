"""What nodes derive from their operands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tilewright.ir.expr.nodes import Expr, Var

NO_VARIABLES: Final[frozenset[Var]] = frozenset()


def union(a: frozenset[Var], b: frozenset[Var]) -> frozenset[Var]:
    """The union of both; one of the two itself if it contains the other, as is common."""
    if b <= a:
        return a
    return b if a <= b else a | b


def variables_in(operands: tuple[Expr, ...]) -> frozenset[Var]:
    """The variables of all operands."""
    found = NO_VARIABLES
    for operand in operands:
        found = union(found, operand.variables)
    return found


def most_lanes(operands: tuple[Expr, ...]) -> int:
    """The lanes of the widest operand."""
    most = 1
    for operand in operands:
        lanes = operand.dtype.lanes
        if lanes > most:
            most = lanes
    return most
