"""The algebra of tensors: one file per family, one row per rule, indexed by operator.

A rule sees a call whose operands are rewritten already (`Site`), and returns the value that
replaces its result, or None. The calls that it emits are rewritten again, so a rule takes one step
and leaves the rest to other rules. A rule never changes the type of the result.
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
    """Rules that keep all elements: those for an operator, then those for all maps."""
    yield from _ALGEBRA.get(name, ())
    yield from bytes.MAPS
    yield from reshapes.MAPS


def scale_rules(name: str) -> Iterable[Rule]:
    """Rules that move constant factors and addends, for an operator; and those that fold transposes
    of factors, which may then be next to their product."""
    return (*scales.RULES.get(name, ()), *transposes.PRODUCTS.get(name, ()))
