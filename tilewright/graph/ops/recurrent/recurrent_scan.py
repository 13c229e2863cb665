"""Scans over time, the common parts of all cells of recurrent networks.

A step is one iteration of the scan: step s of a reversed sequence is time length - 1 - s.
See `recurrent` for operands and results.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.graph.ops.forms.quantize_rows import LEAST
from tilewright.graph.ops.quantized.quantize import to_integer
from tilewright.graph.ops.recurrent.recurrent import GREATEST, Cells
from tilewright.graph.ops.reduce.reduced import accumulator
from tilewright.graph.sizes.naturals import simplify_size
from tilewright.ir import DType, Expr
from tilewright.tensor import te

_INT8, _INT32 = DType.of("int8"), DType.of("int32")


@dataclass(frozen=True)
class Clock:
    """The time of a step, and whether a sequence has ended; `steps` is T."""

    direction: str
    steps: Expr
    lengths: te.Tensor | None

    def time_of(self, d: Expr, b: Expr, at: Expr) -> Expr:
        """The time of a step. Reversal is its own inverse: it is also the step of a time."""
        if self.direction == "forward":
            return at
        back = self.steps - 1 - at
        if self.lengths is not None:
            length = self.length(b)
            back = te.select(at < length, length - 1 - at, at)
        if self.direction == "reverse":
            return back
        return te.select(d == te.const(0), at, back)

    def length(self, b: Expr) -> Expr:
        assert self.lengths is not None
        return te.cast(self.lengths[b], "int64")

    def kept(self, b: Expr, step: Expr, new: Expr, old: Expr) -> Expr:
        """The new state, or the old one where the sequence has ended."""
        return new if self.lengths is None else te.select(step < self.length(b), new, old)

    def output(self, states: te.Tensor, dtype: Any, name: str) -> te.Tensor:
        """T×D×B×H: the states in the order of time; zero after the end of a sequence."""

        def element(t: Expr, d: Expr, b: Expr, j: Expr) -> Expr:
            value = te.cast(states[self.time_of(d, b, t) + 1, d, b, j], dtype)
            if self.lengths is None:
                return value
            return te.select(t < self.length(b), value, te.const(0, dtype))

        return te.compute((self.steps, *states.shape[1:]), element, name=name)

    def last(self, states: te.Tensor, dtype: Any, name: str) -> te.Tensor:
        """D×B×H: the states after the last step."""

        def element(d: Expr, b: Expr, j: Expr) -> Expr:
            return te.cast(states[self.steps, d, b, j], dtype)

        return te.compute(states.shape[1:], element, name=name)


#: The first of consecutive gates, and their number.
Gates = tuple[int, int]


@dataclass(frozen=True)
class RecurrentScan:
    """The common parts of the scans of all cells; `states` is D×B×H.

    Its tensors are over (step, direction, batch, hidden); step 0 holds the first states.
    """

    cells: Cells
    products: te.Tensor
    weight: te.Tensor
    lengths: te.Tensor | None
    states: Sequence[Expr]
    #: D×(gates·H), where the weights are bytes.
    scales: te.Tensor | None = None

    @property
    def clock(self) -> Clock:
        return Clock(self.cells.direction, self.products.shape[0], self.lengths)

    @property
    def work(self) -> DType:
        return accumulator(self.products.dtype)

    @property
    def shape(self) -> tuple[Expr, ...]:
        return (self.products.shape[0] + 1, *self.states)

    def state(self, name: str) -> te.Tensor:
        """A placeholder for a state at all steps."""
        return te.placeholder(self.shape, self.work, f"{name}_state")

    def given(self, k: int, t: Expr, d: Expr, b: Expr, j: Expr) -> Expr:
        """The contribution of the inputs to gate `k`."""
        place = self.clock.time_of(d, b, t - 1)
        column = d * self.weight.shape[2] + (self.weight.shape[1] * k + j)
        return te.cast(self.products[place, b, column], self.work)

    def moved(self, state: te.Tensor, gates: Gates, name: str, back: int = 1) -> te.Tensor:
        """(step, direction, batch, gate, hidden): the product by the state `back` steps ago."""
        if self.scales is not None:
            return self._moved_bytes(state, self.scales, gates, name, back)
        (first, count), hidden = gates, state.shape[3]
        k = te.reduce_axis(hidden, name="k")

        def own(d: Expr, k: Expr, g: Expr, j: Expr) -> Expr:
            return te.cast(self.weight[d, k, self._column(first, g, j)], self.work)

        weights = te.compute((state.shape[1], hidden, count, hidden), own, name=f"{name}_weights")

        def element(t: Expr, d: Expr, b: Expr, g: Expr, j: Expr) -> Any:
            return te.sum(state[_before(back, t), d, b, k] * weights[d, k, g, j], axis=k)

        return te.compute((*state.shape[:3], count, hidden), element, name=name)

    def _column(self, first: int, gate: Expr, j: Expr) -> Expr:
        """The column of the weights for `gate`, counted from the first of some gates."""
        return (gate + first if first else gate) * self.weight.shape[1] + j

    def _moved_bytes(
        self,
        state: te.Tensor,
        scales: te.Tensor,
        gates: Gates,
        name: str,
        back: int,
    ) -> te.Tensor:
        """The same in bytes, with a scale that fits the states of the step."""
        (first, count), hidden = gates, state.shape[3]
        k = te.reduce_axis(hidden, name="k")

        def greatest_of(t: Expr, d: Expr, b: Expr) -> Any:
            return te.max(te.abs(state[_before(back, t), d, b, k]), axis=k)

        greatest = te.compute(state.shape[:3], greatest_of, name=f"{name}_greatest")

        def byte(t: Expr, d: Expr, b: Expr, j: Expr) -> Expr:
            most = greatest[t, d, b]
            factor = te.select(most < LEAST, te.const(0.0), GREATEST / most)
            return to_integer(state[_before(back, t), d, b, j] * factor, None, _INT8)

        stored = te.compute(state.shape, byte, name=f"{name}_bytes")

        def total_of(t: Expr, d: Expr, b: Expr, j: Expr) -> Any:
            column = j + hidden * first if first else j
            factor = te.cast(self.weight[d, k, column], _INT32)
            return te.sum(te.cast(stored[t, d, b, k], _INT32) * factor, axis=k)

        size = simplify_size(hidden * count)
        total = te.compute((*state.shape[:3], size), total_of, name=f"{name}_total")

        def real(t: Expr, d: Expr, b: Expr, g: Expr, j: Expr) -> Expr:
            scale = greatest[t, d, b] * (1 / GREATEST) * scales[d, self._column(first, g, j)]
            return te.cast(total[t, d, b, g * hidden + j], self.work) * scale

        return te.compute((*state.shape[:3], count, hidden), real, name=name)

    def run(
        self,
        name: str,
        first: Sequence[te.Tensor | None],
        updates: Sequence[te.Tensor],
        states: Sequence[te.Tensor],
    ) -> tuple[te.Tensor, ...]:
        """The results: y of the first state, and the last of all states."""
        starts = [self._first(f, u.name) for f, u in zip(first, updates, strict=True)]
        after = te.scan(starts, updates, states, name=name)
        dtype = self.products.dtype
        last = [
            self.clock.last(s, dtype, f"last_{u.name}") for s, u in zip(after, updates, strict=True)
        ]
        return self.clock.output(after[0], dtype, "y"), *last

    def _first(self, given: te.Tensor | None, name: str) -> te.Tensor:
        """1×D×B×H: a state before the first step."""

        def element(_: Expr, d: Expr, b: Expr, j: Expr) -> Expr:
            return te.const(0, self.work) if given is None else te.cast(given[d, b, j], self.work)

        return te.compute((1, *self.states), element, name=f"{name}_first")


def _before(back: int, index: Expr) -> Expr:
    return index - back if back else index
