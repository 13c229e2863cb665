"""The rules of simplification: one file per family, one row per rule, indexed by root.

A rule sees a node whose operands are simplified already, and returns its replacement, or None. The
replacement is simplified again, so a rule takes one step and leaves the rest to other rules.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from tilewright.arith.ranges import Ranges
from tilewright.arith.rules import (
    bits,
    calls,
    casts,
    comparison,
    division,
    extrema,
    floats,
    implication,
    logic,
    vectors,
)
from tilewright.arith.rules.fold import fold
from tilewright.ir import Binary, Expr, Unary

Rule = Callable[[Any, Ranges], Expr | None]
Table = Mapping[object, tuple[Rule, ...]]


def _merged(*tables: Table) -> dict[object, tuple[Rule, ...]]:
    merged: dict[object, tuple[Rule, ...]] = {}
    for table in tables:
        for root, rules in table.items():
            merged[root] = merged.get(root, ()) + rules
    return merged


_RULES = _merged(
    vectors.RULES,
    floats.RULES,
    division.RULES,
    extrema.RULES,
    comparison.RULES,
    logic.RULES,
    implication.RULES,
    bits.RULES,
    casts.RULES,
    calls.RULES,
)


_WITH_OP = frozenset([Binary, Unary])


def rewrite(node: Expr, ranges: Ranges) -> Expr | None:
    """The result of the first rule that applies to the root of `node`."""
    folded = fold(node)
    if folded is not None:
        return folded
    kind = type(node)
    root = cast(Binary | Unary, node).op if kind in _WITH_OP else kind
    for rule in _RULES.get(root, ()):
        result = rule(node, ranges)
        if result is not None:
            return result
    return None
