"""The algebra of tensors: one file per family, one row per rule, indexed by operator.

A rule sees a call whose operands are rewritten already (`Site`), and returns the value to use in
the place of its result, or None. What it makes on the way is rewritten again, so a rule takes one
step and trusts the others with the rest. A rule never changes the type of the result.
"""

# pyright: reportUnusedImport=false
from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from tilewright.graph.rules import (
    bytes,
    casts,
    gathers,
    identities,
    integers,
    norms,
    panels,
    powers,
    reductions,
    reshapes,
    scales,
    slices,
    taps,
    transposes,
)
from tilewright.graph.rules.rewriter import Rule, RuleRewriter
from tilewright.graph.rules.sinks import sink_rules
from tilewright.graph.rules.site import speaks_of_places

Table = Mapping[str, tuple[Rule, ...]]


def _merged(*tables: Table) -> dict[str, tuple[Rule, ...]]:
    merged: dict[str, tuple[Rule, ...]] = {}
    for table in tables:
        for name, rules in table.items():
            merged[name] = merged.get(name, ()) + rules
    return merged


_ALGEBRA = _merged(
    identities.RULES,
    powers.RULES,
    norms.RULES,
    casts.RULES,
    reshapes.RULES,
    transposes.RULES,
    slices.RULES,
    taps.RULES,
    gathers.RULES,
    reductions.RULES,
    integers.RULES,
    panels.RULES,
)


def algebra_rules(name: str) -> Iterator[Rule]:
    """What gives the same elements: the rules for an operator, then those for all maps."""
    yield from _ALGEBRA.get(name, ())
    yield from bytes.MAPS
    yield from reshapes.MAPS


def scale_rules(name: str) -> Iterable[Rule]:
    """What moves constant factors and addends, for an operator; and transposes of factors, between
    which and their product nothing may be left then."""
    return (*scales.RULES.get(name, ()), *transposes.PRODUCTS.get(name, ()))
