"""What is known about symbolic dimensions: they are sizes, so that they are not negative.

Numbers that are read from tensors are dimensions too, once something has their size; until then
they may be anything, and are marked.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from tilewright.arith import Ranges, knowing_nothing, simplify
from tilewright.ir import Expr, Var, free_vars

#: The serial numbers of dimensions that may be negative. Kept by number: it outlives none of them.
_SIGNED: set[int] = set()


def mark_signed(dims: Iterable[Var]) -> None:
    """Say that these dimensions may be negative."""
    _SIGNED.update(d.serial for d in dims)


def is_signed(dim: Var) -> bool:
    """Whether a dimension may be negative."""
    return dim.serial in _SIGNED


def renewed(dim: Var) -> Var:
    """Another dimension of the same name, about which the same is known."""
    made = Var(dim.name)
    if is_signed(dim):
        mark_signed([made])
    return made


def naturals(*exprs: Expr) -> Ranges:
    """What is known about the dimensions in these expressions."""
    return _not_negative(frozenset(v for e in exprs for v in free_vars(e) if not is_signed(v)))


@lru_cache(maxsize=256)
def _not_negative(dims: frozenset[Var]) -> Ranges:
    ranges = knowing_nothing()
    for dim in sorted(dims, key=lambda d: d.serial):
        ranges = ranges.with_bounds(dim, 0, None)
    return ranges


def simplify_size(expr: Expr) -> Expr:
    """An expression over sizes, simplified."""
    return simplify(expr, naturals(expr))
