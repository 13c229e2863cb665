"""What recurrent networks share: directions, sequences of different lengths, scans over time.

Inputs are T×B×I (time, batch, input); weights D×(gates·H)×I and D×(gates·H)×H, one set for each
direction; biases D×(2·gates·H), those of the inputs first; states D×B×H. All times of the inputs
are multiplied at once; what remains is a scan over time. Its weights may be bytes, with a scale for
each column: states are then brought into bytes at every step.

A step is one place of the scan: step s of a sequence that runs backwards is time length - 1 - s.
Results are y, T×D×B×H, and the last states.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.graph.activations import Choice, choose
from tilewright.graph.agreement import require_equal, require_same_shape
from tilewright.graph.attributes import Floats, Strings
from tilewright.graph.elementwise import require_kind, require_same_dtype
from tilewright.graph.ir import Array, Value
from tilewright.graph.ops.quantize import to_integer
from tilewright.graph.ops.quantize_rows import LEAST
from tilewright.graph.reduced import accumulator
from tilewright.graph.types import Dim, TensorType, Type
from tilewright.ir import DType, Expr
from tilewright.support.errors import UserError, nearest
from tilewright.tensor import te

_INT8, _INT32 = DType.of("int8"), DType.of("int32")
#: The largest byte of a state.
_GREATEST = 127
#: Operators that are scans, by products of constant or computed weights with a state.
SCANS = ("lstm_scan", "gru_scan", "rnn_scan")
DIRECTIONS = {"forward": 1, "reverse": 1, "bidirectional": 2}


@dataclass(frozen=True)
class Cells:
    """What the attributes of every network say: directions, activations of each, their bound."""

    direction: str
    activations: Choice
    clip: float

    @classmethod
    def of(
        cls,
        default: Sequence[str],
        direction: str,
        activations: Strings,
        alphas: Floats,
        betas: Floats,
        clip: float,
    ) -> Cells:
        """Cells of a network whose activations are called `default` where none are given."""
        if direction not in DIRECTIONS:
            raise UserError(f"unknown direction {direction}", remedy=nearest(direction, DIRECTIONS))
        chosen = choose(activations, alphas, betas, default, DIRECTIONS[direction])
        return cls(direction, chosen, clip)

    @property
    def directions(self) -> int:
        return DIRECTIONS[self.direction]

    def gate(self, k: int, d: Expr, e: Expr) -> Expr:
        """What goes through activation number `k` of direction `d` is clipped before."""
        return self.activated(k, d, te.clip(e, -self.clip, self.clip) if self.clip else e)

    def activated(self, k: int, d: Expr, e: Expr) -> Expr:
        first, last = self.activations[0][k], self.activations[-1][k]
        if first == last:
            return first.formula(e)
        return te.select(d == te.const(0), first.formula(e), last.formula(e))

    def gate_value(self, k: int, d: int, x: Array) -> Array:
        """`gate` by NumPy."""
        return self.value(k, d, np.clip(x, -self.clip, self.clip) if self.clip else x)

    def value(self, k: int, d: int, x: Array) -> Array:
        return self.activations[d][k].value(x)


# ---- operands -----------------------------------------------------------------------------------


def network_types(
    cells: Cells,
    x: Value,
    w: Value,
    r: Value,
    b: Value | None,
    lengths: Value | None,
    states: Sequence[Value | None],
    gates: int,
) -> tuple[Type, ...]:
    """The types of a network's results; operands that do not fit are refused."""
    given = [v for v in (b, *states) if v is not None]
    require_kind("float", x, w, r, *given)
    require_same_dtype(x, w, r, *given)
    if not x.ndim == w.ndim == r.ndim == 3:
        raise UserError(f"inputs and weights have 3 dimensions, not {x}, {w}, {r}")
    if lengths is not None:
        require_kind("integer", lengths)
    count, hidden = cells.directions, r.shape[2]
    rows = hidden * gates
    require_same_shape(w.shape, [count, rows, x.shape[2]], "w and D×(gates·H)×I")
    require_same_shape(r.shape, [count, rows, hidden], "r and D×(gates·H)×H")
    if b is not None:
        require_same_shape(b.shape, [count, rows * 2], "biases and D×(2·gates·H)")
    return _result_types(x, [count, x.shape[1], hidden], lengths, states)


def scan_types(
    cells: Cells,
    products: Value,
    weight: Value,
    lengths: Value | None,
    states: Sequence[Value | None],
    gates: int,
    scales: Value | None,
) -> tuple[Type, ...]:
    """The types of a scan's results; operands that do not fit are refused."""
    require_kind("float", products, *([weight] if scales is None else [scales]))
    if products.ndim != 3 or weight.ndim != 3:
        raise UserError(f"products and weights have 3 dimensions, not {products}, {weight}")
    count, hidden = cells.directions, weight.shape[1]
    given = [count, hidden, hidden * gates]
    require_same_shape(weight.shape, given, "weights and D×H×(gates·H)")
    if scales is not None:
        require_bytes(weight)
        require_same_shape(scales.shape, [count, hidden * gates], "scales and D×(gates·H)")
    require_equal(products.shape[2], hidden * (gates * count), "products and D·gates·H")
    return _result_types(products, [count, products.shape[1], hidden], lengths, states)


def require_bytes(weight: Value) -> None:
    """Refuse weights that have scales, but are no bytes."""
    if weight.dtype is not _INT8:
        raise UserError(f"scales are given for {weight}", reason="its elements are not int8")


def _result_types(
    x: Value, shape: Sequence[Dim], lengths: Value | None, states: Sequence[Value | None]
) -> tuple[Type, ...]:
    """Refuse first states that are not D×B×H, and lengths that are not one for each batch."""
    if lengths is not None:
        require_same_shape(lengths.shape, [shape[1]], "lengths and batches")
    for given in states:
        if given is not None:
            require_same_shape(given.shape, shape, "a state and D×B×H")
    return TensorType(x.dtype, [x.shape[0], *shape]), *[TensorType(x.dtype, shape)] * len(states)


def input_products(
    builder: Any, x: Value, w: Value, r: Value, b: Value | None
) -> tuple[Value, Value]:
    """T×B×(D·gates·H): the inputs times their weights plus both biases; and the weights of the
    states as D×H×(gates·H), so that neighbours make neighbouring results."""
    flat = builder.reshape(w, shape=[w.shape[0] * w.shape[1], w.shape[2]])
    bias = None
    if b is not None:
        size = w.shape[1]
        both = b[:, :size] + b[:, size:]
        bias = builder.reshape(both, shape=[w.shape[0] * size])
    return builder.dense(x, flat, bias), builder.transpose(r, axes=[0, 2, 1])


# ---- time ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Clock:
    """Which time a step is, and whether a sequence has ended; `steps` is T."""

    direction: str
    steps: Expr
    lengths: te.Tensor | None

    def turned(self, d: Expr, b: Expr, at: Expr) -> Expr:
        """The time of a step; the step of a time is the same, as turning twice changes nothing."""
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
        """T×D×B×H: the states in the order of time; zero behind the end of a sequence."""

        def element(t: Expr, d: Expr, b: Expr, j: Expr) -> Expr:
            value = te.cast(states[self.turned(d, b, t) + 1, d, b, j], dtype)
            if self.lengths is None:
                return value
            return te.select(t < self.length(b), value, te.const(0, dtype))

        return te.compute((self.steps, *states.shape[1:]), element, name=name)

    def last(self, states: te.Tensor, dtype: Any, name: str) -> te.Tensor:
        """D×B×H: the states after the last step."""

        def element(d: Expr, b: Expr, j: Expr) -> Expr:
            return te.cast(states[self.steps, d, b, j], dtype)

        return te.compute(states.shape[1:], element, name=name)


#: Where columns of the weights start, if not at the first, and how many there are.
Columns = tuple[Expr | None, Expr]


@dataclass(frozen=True)
class Scan:
    """What the scans of all cells are put together from; `states` is D×B×H.

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
        """Stands for a state of all steps."""
        return te.placeholder(self.shape, self.work, f"{name}_state")

    def given(self, k: int, t: Expr, d: Expr, b: Expr, j: Expr) -> Expr:
        """What the inputs give to gate `k`."""
        place = self.clock.turned(d, b, t - 1)
        column = d * self.weight.shape[2] + (self.weight.shape[1] * k + j)
        return te.cast(self.products[place, b, column], self.work)

    def moved(self, state: te.Tensor, columns: Columns, name: str, back: int = 1) -> te.Tensor:
        """What the state `back` steps ago gives for `count` columns of the weights from `start`."""
        if self.scales is not None:
            return self._moved_bytes(state, self.scales, columns, name, back)
        return self._product(state, columns, self.work, name, back)

    def _product(
        self,
        state: te.Tensor,
        columns: Columns,
        dtype: DType,
        name: str,
        back: int,
    ) -> te.Tensor:
        start, count = columns
        k = te.reduce_axis(state.shape[3], name="k")

        def element(t: Expr, d: Expr, b: Expr, j: Expr) -> Any:
            factor = te.cast(self.weight[d, k, _after(start, j)], dtype)
            return te.sum(te.cast(state[_before(back, t), d, b, k], dtype) * factor, axis=k)

        return te.compute((*state.shape[:3], count), element, name=name)

    def _moved_bytes(
        self,
        state: te.Tensor,
        scales: te.Tensor,
        columns: Columns,
        name: str,
        back: int,
    ) -> te.Tensor:
        """The same in bytes, by a scale that the states of the step ask for."""
        k = te.reduce_axis(state.shape[3], name="k")

        def greatest_of(t: Expr, d: Expr, b: Expr) -> Any:
            return te.max(te.abs(state[_before(back, t), d, b, k]), axis=k)

        greatest = te.compute(state.shape[:3], greatest_of, name=f"{name}_greatest")

        def byte(t: Expr, d: Expr, b: Expr, j: Expr) -> Expr:
            most = greatest[t, d, b]
            factor = te.select(most < LEAST, te.const(0.0), _GREATEST / most)
            return to_integer(state[_before(back, t), d, b, j] * factor, None, _INT8)

        stored = te.compute(state.shape, byte, name=f"{name}_bytes")
        total = self._product(stored, columns, _INT32, f"{name}_total", 0)

        def real(t: Expr, d: Expr, b: Expr, j: Expr) -> Expr:
            scale = greatest[t, d, b] * (1 / _GREATEST) * scales[d, _after(columns[0], j)]
            return te.cast(total[t, d, b, j], self.work) * scale

        return te.compute(total.shape, real, name=name)

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


def _after(start: Expr | None, index: Expr) -> Expr:
    return index if start is None else index + start


def _before(back: int, index: Expr) -> Expr:
    return index - back if back else index


# ---- references ---------------------------------------------------------------------------------


def run_reference(
    cells: Cells,
    x: Array,
    lengths: Array | None,
    given: Sequence[Array | None],
    hidden: int,
    step: Callable[[int, Array, list[Array]], list[Array]],
) -> tuple[Array, ...]:
    """The results by NumPy; `step(direction, x at a time, states)` gives the next states."""
    steps, batch = x.shape[:2]
    ends = np.full(batch, steps) if lengths is None else lengths
    shape = (cells.directions, batch, hidden)
    final = [np.zeros(shape) if s is None else s.astype(np.float64) for s in given]
    y = np.zeros((steps, *shape), np.float64)
    for d in range(cells.directions):
        backwards = cells.direction == "reverse" or d == 1
        for n in range(batch):
            own = [s[d, n : n + 1] for s in final]
            times = range(int(ends[n]))
            for t in reversed(times) if backwards else times:
                own = step(d, x[t, n : n + 1].astype(np.float64), own)
                y[t, d, n] = own[0][0]
            for target, value in zip(final, own, strict=True):
                target[d, n] = value[0]
    return tuple(a.astype(x.dtype) for a in (y, *final))


def biases_reference(b: Array | None, directions: int, size: int) -> tuple[Array, Array]:
    """Those of the inputs and those of the states."""
    both = np.zeros((directions, 2 * size)) if b is None else b.astype(np.float64)
    return both[:, :size], both[:, size:]


#: What becomes of states before they are multiplied.
Rounding = Callable[[Array], Array]


def exactly(state: Array) -> Array:
    """States are multiplied as they are."""
    return state


def in_bytes(state: Array) -> Array:
    """What states stand for that are multiplied as bytes."""
    scale = np.abs(state).max(axis=-1, keepdims=True, initial=0) / _GREATEST
    with np.errstate(all="ignore"):
        return np.where(scale * _GREATEST < LEAST, 0, np.rint(state / scale) * scale)


def as_network(
    products: Array, weight: Array, scales: Array | None
) -> tuple[tuple[Array, Array, Array], Rounding]:
    """The (x, w, r) of a network that computes a scan: its input weights are the identity; and what
    becomes of its states."""
    directions, size = weight.shape[0], weight.shape[2]
    w = np.eye(directions * size, dtype=products.dtype).reshape(directions, size, -1)
    if scales is None:
        return (products, w, weight.swapaxes(1, 2)), exactly
    return (products, w, (weight * scales[:, None]).swapaxes(1, 2)), in_bytes
