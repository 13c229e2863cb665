"""The smallest part of a graph that still fails, by delta debugging over its bindings.

    A. Zeller, R. Hildebrandt: Simplifying and Isolating Failure-Inducing Input (2002)

What a part uses of the rest becomes a parameter. Where one binding with graphs inside it is left,
the search goes on in these.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeVar

if TYPE_CHECKING:
    from tilewright.graph import Binding, Function, Graph, Module

Item = TypeVar("Item")


class Reduced(NamedTuple):
    """A module that fails, and the bindings of the original that are left in `main`."""

    module: Module
    body: Sequence[Binding]


def reduced_module(module: Module, fails: Callable[[Module], bool], seconds: float) -> Reduced:
    """The smallest part of a failing module that was found in so many seconds."""
    end = time.monotonic() + seconds
    best = Reduced(module, module.main.body)
    # A function that is called may be at fault, and inner graphs of what is left.
    pending: list[Graph] = [module.main, *_other_functions(module)]
    while pending and time.monotonic() < end:
        found = _reduced_graph(module, pending.pop(0), fails, end)
        if found is not None:
            best = found
            pending = [g for b in best.body for g in b.expr.graphs] if len(best.body) == 1 else []
    return best


def _reduced_graph(
    module: Module, graph: Graph, fails: Callable[[Module], bool], end: float
) -> Reduced | None:
    """The smallest part of one graph of the module; None where that does not fail by itself."""
    from tilewright.graph import module_part

    def is_enough(body: Sequence[Binding]) -> bool:
        made = module_part(module, body, graph.results)
        return bool(made.main.results) and fails(made)

    if not is_enough(graph.body):
        return None
    body = smallest(graph.body, is_enough, end)
    return Reduced(module_part(module, body, graph.results), body)


def _other_functions(module: Module) -> list[Function]:
    return [f for f in module.functions.values() if f is not module.main]


def smallest(
    items: Sequence[Item], fails: Callable[[Sequence[Item]], bool], end: float
) -> Sequence[Item]:
    """A part of failing items from which nothing can be taken, unless time ends before."""
    count = 2
    while len(items) > 1 and time.monotonic() < end:
        size = -(-len(items) // count)
        starts = range(0, len(items), size)
        parts = [items[k : k + size] for k in starts]
        rests = [[*items[:k], *items[k + size :]] for k in starts] if count > 2 else []
        found = _first([*parts, *rests], fails, end)
        if found is None and size == 1:
            return items
        items, count = (items, 2 * count) if found is None else (found, 2)
    return items


def _first(
    parts: Sequence[Sequence[Item]], fails: Callable[[Sequence[Item]], bool], end: float
) -> Sequence[Item] | None:
    return next((p for p in parts if time.monotonic() < end and fails(p)), None)
