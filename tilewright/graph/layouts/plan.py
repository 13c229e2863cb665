"""The cheapest choice of forms for a sequence of calls: dynamic programming over known layouts.

Values that are plain in all forms, and calls on such values alone, are left out: there is nothing
to choose. The other calls are visited in order. A state is a bit mask for each live value: the
layouts in which it is available. Of all ways to a state, the cheapest is kept. A layout that a form
needs and that is not available is converted from the one that is cheapest to convert, and available
from then on. The plan is optimal as long as the states stay within the limit; beyond it, only the
cheapest are kept, so that time is linear in the number of calls.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from heapq import nsmallest
from operator import itemgetter
from typing import Final, NamedTuple

#: Most states that are kept after each call.
STATES: Final = 128

#: `change(value, old, new)`: the cost of converting a value to another layout.
Change = Callable[[int, int, int], float]
#: For each live value, the layouts in which it is available: bit 0 is plain.
State = tuple[int, ...]


class Option(NamedTuple):
    """A form of a call: (value, layout) pairs that it reads, the layout of its result, its cost."""

    takes: tuple[tuple[int, int], ...]
    gives: int
    cost: float


class PlannedCall(NamedTuple):
    """A call: the value that it makes, if that is planned for, and its forms."""

    made: int | None
    options: Sequence[Option]


class _Way(NamedTuple):
    """The cheapest way to a state: its cost, the last option, and the way before that."""

    cost: float
    option: int
    before: _Way | None


def plan(steps: Sequence[PlannedCall], change: Change, limit: int = STATES) -> list[int]:
    """The number of the option for each step; values that no step makes are plain."""
    varied = _varied(steps)
    narrowed = [_about(step, varied) for step in steps]
    open_ones = [k for k, step in enumerate(narrowed) if not _is_settled(step)]
    chosen = _planned([narrowed[k] for k in open_ones], change, limit)
    numbers = dict(zip(open_ones, chosen, strict=True))
    return [numbers.get(k, 0) for k in range(len(steps))]


def _varied(steps: Sequence[PlannedCall]) -> set[int]:
    """The values that some form makes or reads in a layout that is not the plain one."""
    options = [(step.made, option) for step in steps for option in step.options]
    read = {value for _, option in options for value, layout in option.takes if layout}
    return read | {made for made, option in options if made is not None and option.gives}


def _about(step: PlannedCall, values: Container[int | None]) -> PlannedCall:
    """A step restricted to some values; all others are always plain."""
    options = [o._replace(takes=tuple(t for t in o.takes if t[0] in values)) for o in step.options]
    return PlannedCall(step.made if step.made in values else None, options)


def _is_settled(step: PlannedCall) -> bool:
    return step.made is None and len(step.options) == 1 and not step.options[0].takes


def _planned(steps: Sequence[PlannedCall], change: Change, limit: int) -> list[int]:
    last = _last_uses(steps)
    prices = _Prices(change)
    live: list[int] = []
    ways: dict[State, _Way] = {(): _Way(0.0, -1, None)}
    for index, step in enumerate(steps):
        taken = {v for o in step.options for v, _ in o.takes}
        known = [*live, *sorted(taken - set(live))]
        entering = (1,) * (len(known) - len(live))
        keep = _picked([k for k, v in enumerate(known) if last[v] > index])
        about = _picked([k for k, v in enumerate(known) if v in taken])
        follow = step.made is not None and last.get(step.made, -1) > index
        made = [(1 << option.gives,) if follow else () for option in step.options]
        outcomes = _Outcomes(step.options, [v for v in known if v in taken], known, prices)
        found: dict[State, _Way] = {}
        for state, way in ways.items():
            full = state + entering
            same = keep(full)
            for number, (cost, changes) in enumerate(outcomes[about(full)]):
                rest = keep(_changed(full, changes)) if changes else same
                new = rest + made[number]
                total = way.cost + cost
                other = found.get(new)
                if other is None or total < other.cost:
                    found[new] = _Way(total, number, way)
        if len(found) > limit:
            found = dict(nsmallest(limit, found.items(), key=lambda item: item[1].cost))
        ways = found
        live = [v for v in known if last[v] > index]
        if follow and step.made is not None:
            live.append(step.made)
    return _options(min(ways.values(), key=lambda way: way.cost))


#: Indices in a state, and the masks of layouts available there from then on.
_Changes = Sequence[tuple[int, int]]


class _Outcomes(dict[State, list[tuple[float, _Changes]]]):
    """For each option of a step its cost and its changes of the state, by the layouts available of
    the values that it reads: most states differ only in other values."""

    def __init__(
        self,
        options: Sequence[Option],
        values: Sequence[int],
        known: Sequence[int],
        prices: _Prices,
    ) -> None:
        super().__init__()
        self._options, self._prices = options, prices
        self._places = {v: k for k, v in enumerate(values)}
        self._known = [known.index(v) for v in values]

    def __missing__(self, state: State) -> list[tuple[float, _Changes]]:
        taken = [_take(state, self._places, option, self._prices) for option in self._options]
        found = self[state] = [(cost, self._changes(state, held)) for cost, held in taken]
        return found

    def _changes(self, before: State, after: Sequence[int]) -> _Changes:
        each = zip(self._known, before, after, strict=True)
        return [(k, new) for k, old, new in each if old != new]


def _changed(state: State, changes: _Changes) -> list[int]:
    held = list(state)
    for k, mask in changes:
        held[k] = mask
    return held


def _picked(places: Sequence[int]) -> Callable[[Sequence[int]], State]:
    """A function that takes the items at some indices."""
    if len(places) > 1:
        return itemgetter(*places)
    # An itemgetter of one index gives a bare item; of none, it does not exist.
    return lambda items: tuple(items[k] for k in places)


def cost_of(steps: Sequence[PlannedCall], chosen: Sequence[int], change: Change) -> float:
    """The total cost of a choice of options."""
    held: dict[int, int] = {}
    prices = _Prices(change)
    total = 0.0
    for step, number in zip(steps, chosen, strict=True):
        option = step.options[number]
        known = list(dict.fromkeys(v for v, _ in option.takes))
        places = {v: k for k, v in enumerate(known)}
        cost, masks = _take([held.get(v, 1) for v in known], places, option, prices)
        held.update(zip(known, masks, strict=True))
        total += cost
        if step.made is not None:
            held[step.made] = 1 << option.gives
    return total


def nearest_layout(mask: int, value: int, wanted: int, change: Change) -> int:
    """Of the available layouts, the one that is cheapest to convert to `wanted`."""
    at_hand = [k for k in range(mask.bit_length()) if mask >> k & 1]
    return min(at_hand, key=lambda old: change(value, old, wanted))


class _Prices(dict[tuple[int, int, int], float]):
    """The cost of converting a value to a layout from the cheapest of those available."""

    def __init__(self, change: Change) -> None:
        super().__init__()
        self._change = change

    def __missing__(self, key: tuple[int, int, int]) -> float:
        mask, value, wanted = key
        nearest = nearest_layout(mask, value, wanted, self._change)
        price = self[key] = self._change(value, nearest, wanted)
        return price


def _take(
    state: Sequence[int], places: Mapping[int, int], option: Option, prices: _Prices
) -> tuple[float, Sequence[int]]:
    """The cost of an option in a state, and the layouts available afterwards."""
    held, cost = state, option.cost
    for value, wanted in option.takes:
        k = places[value]
        mask = held[k]
        if not mask >> wanted & 1:
            cost += prices[mask, value, wanted]
            held = [*held[:k], mask | 1 << wanted, *held[k + 1 :]]
    return cost, held


def _last_uses(steps: Sequence[PlannedCall]) -> dict[int, int]:
    last: dict[int, int] = {}
    for index, step in enumerate(steps):
        last.update((v, index) for option in step.options for v, _ in option.takes)
    return last


def _options(way: _Way) -> list[int]:
    found: list[int] = []
    while way.before is not None:
        found.append(way.option)
        way = way.before
    return found[::-1]
