"""sample_tile(loop, parts)"""

from __future__ import annotations

import math
from collections.abc import Sequence
from random import Random
from typing import Any, cast

from tilewright.ir import Const, For
from tilewright.schedule.cursor import Tree
from tilewright.schedule.edit import Edit
from tilewright.schedule.error import Fault, require
from tilewright.schedule.facts.legality import extent_is_constant

#: Draws after which the limit on the innermost factor is enforced by construction.
_TRIES = 32


def sample_tile(
    tree: Tree,
    loop: For,
    parts: int,
    max_inner: int = 64,
    perfect: bool = True,
    *,
    decision: Sequence[int] | None = None,
    source: Random,
) -> Edit:
    """Draw factors for splitting a loop into `parts`, each factorisation as likely as any other.

    Perfect factors multiply to the extent; otherwise all but the first are free, and the first
    covers the rest. The innermost is at most `max_inner`. The function stays unchanged.
    """
    check(tree, loop, parts, max_inner, perfect, decision=decision)
    assert isinstance(loop.extent, Const)
    extent = int(loop.extent.value)
    if decision is None:
        draw = _perfect if perfect else _covering
        decision = draw(extent, parts, max_inner, source)
    factors = [int(factor) for factor in decision]
    return Edit(tree.function, tuple(factors), factors)


def check(
    tree: Tree,
    loop: For,
    parts: int,
    max_inner: int = 64,
    perfect: bool = True,
    *,
    decision: Any = None,
) -> None:
    what = f"cannot sample {parts} factors for loop {loop.var.name}"
    require(tree, what, extent_is_constant(loop), _numbers_are_sound(loop, parts, max_inner))
    if decision is not None:
        require(tree, what, _decision_fits(loop, parts, max_inner, perfect, decision))


def _numbers_are_sound(loop: For, parts: int, max_inner: int) -> Fault | None:
    if parts < 2:
        return Fault("a tile has at least two parts", "ask for 2 or more", loop)
    return Fault("no factor is below 1", "make max_inner 1 or more") if max_inner < 1 else None


def _decision_fits(
    loop: For, parts: int, max_inner: int, perfect: bool, decision: Any
) -> Fault | None:
    assert isinstance(loop.extent, Const)
    wrong = Fault(
        f"the decision {decision} does not fit its extent {loop.extent}", "sample anew", loop
    )
    if not isinstance(decision, list | tuple):
        return wrong
    factors = cast(Sequence[Any], decision)
    if len(factors) != parts or any(type(f) is not int or f < 1 for f in factors):
        return wrong
    covered = math.prod(factors)
    fits = covered == loop.extent.value if perfect else covered >= loop.extent.value
    return None if fits and factors[-1] <= max_inner else wrong


def _perfect(extent: int, parts: int, max_inner: int, source: Random) -> list[int]:
    for _ in range(_TRIES):
        factors = _shared_out(extent, parts, source)
        if factors[-1] <= max_inner:
            return factors
    return _limited(extent, parts, max_inner, source)


def _limited(extent: int, parts: int, max_inner: int, source: Random) -> list[int]:
    """Draw the innermost factor first, among the divisors up to the limit."""
    inner = source.choice(
        [d for d in range(1, min(extent, max_inner) + 1) if extent % d == 0] or [1]
    )
    return [*_shared_out(extent // inner, parts - 1, source), inner]


def _shared_out(extent: int, parts: int, source: Random) -> list[int]:
    """Distribute each prime power over the parts, all ways equally likely."""
    factors = [1] * parts
    for prime, power in _primes(extent):
        # Stars and bars: `parts - 1` bars divide `power` stars into shares.
        bars = sorted(source.sample(range(power + parts - 1), parts - 1))
        edges = [-1, *bars, power + parts - 1]
        for part in range(parts):
            factors[part] *= prime ** (edges[part + 1] - edges[part] - 1)
    return factors


def _covering(extent: int, parts: int, max_inner: int, source: Random) -> list[int]:
    inner: list[int] = []
    left, limit = extent, max_inner
    for _ in range(parts - 1):
        factor = source.randint(1, max(1, min(left, limit)))
        inner.append(factor)
        left, limit = -(-left // factor), left
    return [left, *reversed(inner)]


def _primes(number: int) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    divisor = 2
    while divisor * divisor <= number:
        power = 0
        while number % divisor == 0:
            number, power = number // divisor, power + 1
        if power:
            found.append((divisor, power))
        divisor += 1
    return [*found, (number, 1)] if number > 1 else found
