"""reorder(*loops)"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir import For
from tilewright.schedule.cursor import Tree
from tilewright.schedule.edit import Edit, nest
from tilewright.schedule.error import Fault, require
from tilewright.schedule.facts.dependence import order_does_not_matter
from tilewright.schedule.facts.legality import (
    chain_of,
    extents_do_not_depend_on,
    loops_are_distinct,
    loops_form_one_chain,
    names,
)


def reorder(tree: Tree, *loops: For) -> Edit:
    """Put the named loops of a nest in this order; the other loops of the nest stay in place.

    for i:                  -->      for j:
        for j: B[i, j]                   for i: B[i, j]
    """
    check(tree, *loops)
    chain = chain_of(tree, loops)
    assert not isinstance(chain, Fault)
    return Edit(tree.replace(chain[0], nest(_placed(chain, loops), chain[-1].body)))


def check(tree: Tree, *loops: For) -> None:
    what = f"cannot reorder {names(loops) or 'no loops'}"
    require(tree, what, _there_is_one(loops), loops_are_distinct(loops))
    require(tree, what, loops_form_one_chain(tree, loops))
    chain = chain_of(tree, loops)
    assert not isinstance(chain, Fault)
    order = _placed(chain, loops)
    require(tree, what, _extents_are_known(order), order_does_not_matter(tree, chain, order))


def _there_is_one(loops: Sequence[For]) -> Fault | None:
    return None if loops else Fault("there is no loop", "name the loops in their new order")


def _placed(chain: Sequence[For], loops: Sequence[For]) -> list[For]:
    """The chain of loops, in which the named ones take each other's positions in the new order."""
    moved = set(loops)
    rest = iter(loops)
    return [next(rest) if loop in moved else loop for loop in chain]


def _extents_are_known(order: Sequence[For]) -> Fault | None:
    faults = (extents_do_not_depend_on([loop], on=order[n:]) for n, loop in enumerate(order))
    return next(filter(None, faults), None)
