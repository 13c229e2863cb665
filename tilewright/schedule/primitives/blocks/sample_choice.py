"""sample_choice(candidates, weights)"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from tilewright.schedule.cursor import Tree
from tilewright.schedule.edit import Edit
from tilewright.schedule.error import Fault, require


def sample_choice(
    tree: Tree,
    candidates: Sequence[int],
    weights: Sequence[float] | None = None,
    *,
    decision: int | None = None,
    source: Random,
) -> Edit:
    """Draw one of several integers; the decision is its position. The function stays unchanged."""
    check(tree, candidates, weights, decision=decision)
    if decision is None:
        decision = source.choices(range(len(candidates)), weights)[0]
    return Edit(tree.function, (int(candidates[decision]),), decision)


def check(
    tree: Tree,
    candidates: Sequence[int],
    weights: Sequence[float] | None = None,
    *,
    decision: Any = None,
) -> None:
    what = f"cannot choose among {list(candidates)}"
    require(tree, what, _are_whole_numbers(candidates), _are_weights(candidates, weights))
    if decision is not None and (type(decision) is not int or not 0 <= decision < len(candidates)):
        require(tree, what, Fault(f"the decision {decision!r} is no position among them"))


def _are_whole_numbers(candidates: Sequence[object]) -> Fault | None:
    if candidates and all(isinstance(c, int) for c in candidates):
        return None
    return Fault(
        "candidates are whole numbers, one or more", "choose among their positions instead"
    )


def _are_weights(candidates: Sequence[int], weights: Sequence[float] | None) -> Fault | None:
    if weights is None:
        return None
    sound = len(weights) == len(candidates) and min(weights) >= 0 and sum(weights) > 0
    return None if sound else Fault(f"the weights {list(weights)} do not fit them", "one for each")
