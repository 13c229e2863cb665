"""What is known about symbolic dimensions: they are sizes, so that they are not negative.

Numbers that are read from tensors are dimensions too. They may be negative until something has them
as its size, and are marked as such.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Final

from tilewright.arith import Ranges, knowing_nothing, simplify
from tilewright.ir import Binary, Const, Expr, Unary, Var, free_vars
from tilewright.support.dtype import index
from tilewright.support.errors import UserError

#: The serial numbers of dimensions that may be negative; these keep no dimension alive.
_SIGNED: set[int] = set()


def mark_signed(dims: Iterable[Var]) -> None:
    """Mark dimensions that may be negative."""
    _SIGNED.update(d.serial for d in dims)


def is_signed(dim: Var) -> bool:
    """Whether a dimension may be negative."""
    return dim.serial in _SIGNED


def renewed(dim: Var) -> Var:
    """Another dimension of the same name and with the same mark."""
    made = Var(dim.name)
    if is_signed(dim):
        mark_signed([made])
    return made


def naturals(*exprs: Expr) -> Ranges:
    """Ranges of the dimensions in these expressions."""
    return _not_negative(frozenset(v for e in exprs for v in free_vars(e) if not is_signed(v)))


@lru_cache(maxsize=256)
def _not_negative(dims: frozenset[Var]) -> Ranges:
    ranges = knowing_nothing()
    for dim in sorted(dims, key=lambda d: d.serial):
        ranges = ranges.with_bounds(dim, 0, None)
    return ranges


def simplify_size(expr: Expr, ranges: Ranges | None = None) -> Expr:
    """An expression over sizes, simplified; refused where numbers in it do not fit 64 bits."""
    _require_fits(expr)
    return simplify(expr, naturals(expr) if ranges is None else ranges)


#: The operations that sizes consist of, computed exactly.
_EXACT: Final[dict[str, Callable[[int, int], int]]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "floordiv": lambda a, b: a // b if b else 0,
    "floormod": lambda a, b: a % b if b else 0,
    "min": min,
    "max": max,
}


@lru_cache(maxsize=4096)
def _require_fits(expr: Expr) -> None:
    """Refuse sizes whose numbers overflow, even where every symbolic dimension is 1.

    Simplification wraps around as the machine does, and would turn such an expression into a
    plausible but wrong size.
    """
    values: dict[Expr, int | None] = {}
    pending = [expr]
    while pending:
        node = pending[-1]
        missing = [o for o in node.operands if o not in values]
        pending.extend(missing)
        if missing:
            continue
        pending.pop()
        values[node] = value = _exact(node, values)
        if value is not None and not index.min_value <= value <= index.max_value:
            where = " where every dimension in it is 1" if free_vars(node) else ""
            raise UserError("a size does not fit 64 bits", reason=f"{node} is {value}{where}")


def _exact(node: Expr, values: dict[Expr, int | None]) -> int | None:
    """The value of a node with 1 for each dimension; None where it is not made of integers."""
    if isinstance(node, Const):
        return int(node.value) if node.dtype is index else None
    if isinstance(node, Var):
        return 1 if node.dtype is index else None
    operands = [values[o] for o in node.operands]
    numbers = [v for v in operands if v is not None]
    if len(numbers) < len(operands):
        return None
    if isinstance(node, Unary) and node.op == "neg":
        return -numbers[0]
    if isinstance(node, Binary) and node.op in _EXACT:
        return _EXACT[node.op](*numbers)
    return None
