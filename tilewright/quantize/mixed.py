"""Selects the layers to quantize, so that the error stays within a budget.

The noise of each layer alone is measured; layers return to float32 one after the other, first those
with the most noise for the work that they save.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from tilewright.quantize.layers import Layer
from tilewright.quantize.measure import Error, error_of
from tilewright.quantize.observe import Batch
from tilewright.quantize.simulate import Simulation

#: Samples for the noise of single layers, and for choices of layers.
_FEW: Final = 4
_MANY: Final = 32
#: Most points of the curve.
_POINTS: Final = 9


class Point(NamedTuple):
    """A choice of layers and its error."""

    in_float: int
    #: The share of multiplications in int8.
    share: float
    error: Error


@dataclass
class Trials:
    """The measured choices, by the order in which layers return to float32."""

    order: list[Layer]
    noise: dict[Layer, Error]
    points: dict[int, Point] = field(default_factory=dict[int, Point])

    @property
    def curve(self) -> list[Point]:
        return [self.points[k] for k in sorted(self.points)]


class Trying:
    """Measures choices of layers on a few samples."""

    def __init__(
        self, simulation: Simulation, batches: Sequence[Batch], work: dict[Layer, int]
    ) -> None:
        self._simulation = simulation
        #: Multiplications of each layer.
        self.work = work
        self._batches = list(batches)[:_MANY]
        self._wanted = [simulation.run(b, ()) for b in self._batches]

    def error(self, chosen: Collection[Layer], count: int = _MANY) -> Error:
        """The error with only these layers quantized."""
        few = self._batches[:count]
        wanted = iter(self._wanted[:count])
        return error_of(lambda b: self._simulation.run(b, chosen), lambda _: next(wanted), few)

    def ranked(self, layers: Sequence[Layer], step: Callable[[], None]) -> Trials:
        """All layers, in the order in which they return to float32."""
        noise: dict[Layer, Error] = {}
        for layer in layers:
            noise[layer] = self.error([layer], _FEW)
            step()

        def gain(layer: Layer) -> float:
            return 10 ** (-noise[layer].sqnr / 10) / max(self.work[layer], 1)

        return Trials(sorted(layers, key=gain, reverse=True), noise)

    def point(self, trials: Trials, in_float: int) -> Point:
        """The choice with this many layers in float32."""
        if in_float not in trials.points:
            chosen = trials.order[in_float:]
            total = sum(self.work.values())
            share = sum(self.work[layer] for layer in chosen) / max(total, 1)
            trials.points[in_float] = Point(in_float, share, self.error(set(chosen)))
        return trials.points[in_float]


def within_budget(trying: Trying, trials: Trials, budget: float, least: int = 0) -> int:
    """The fewest layers in float32, but at least `least`, that keep the error in the budget."""
    low, high = least, len(trials.order)
    while low < high:
        middle = (low + high) // 2
        if trying.point(trials, middle).error.expected <= budget:
            high = middle
        else:
            low = middle + 1
    return low


def draw_curve(trying: Trying, trials: Trials, step: Callable[[], None]) -> None:
    """Measure some more choices, evenly spaced."""
    count = len(trials.order)
    wanted = {round(k * count / (_POINTS - 1)) for k in range(_POINTS)}
    for in_float in sorted(wanted):
        trying.point(trials, in_float)
        step()
