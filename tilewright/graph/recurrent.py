"""What recurrent networks share: directions, sequences of different lengths, activations.

Inputs are T×B×I (time, batch, input); weights D×(gates·H)×I and D×(gates·H)×H, one set for each
direction; biases D×(2·gates·H), those of the inputs first; states D×B×H. All times of the inputs
are multiplied at once; what remains is a scan over time. A step is one place of the scan: step s of
a sequence that runs backwards is time length - 1 - s.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.graph.agreement import require_equal, require_same_shape
from tilewright.graph.attributes import Floats, Strings
from tilewright.graph.elementwise import require_kind, require_same_dtype
from tilewright.graph.ir import Array, Value
from tilewright.graph.types import Dim, TensorType
from tilewright.ir import Expr
from tilewright.support.errors import UserError, nearest
from tilewright.tensor import te

DIRECTIONS = {"forward": 1, "reverse": 1, "bidirectional": 2}

# ---- activations --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Activation:
    """A function of (x, alpha, beta), by NumPy and as a formula, and the parameters by default."""

    reference: Callable[[Array, float, float], Any]
    formula: Callable[[Expr, float, float], Expr]
    alpha: float = 1.0
    beta: float = 0.0


ACTIVATIONS: dict[str, Activation] = {
    "sigmoid": Activation(lambda x, a, b: 1 / (1 + np.exp(-x)), lambda e, a, b: te.sigmoid(e)),
    "tanh": Activation(lambda x, a, b: np.tanh(x), lambda e, a, b: te.tanh(e)),
    "relu": Activation(lambda x, a, b: np.maximum(x, 0), lambda e, a, b: te.maximum(e, 0)),
    "affine": Activation(lambda x, a, b: a * x + b, lambda e, a, b: e * a + b),
    "leaky_relu": Activation(
        lambda x, a, b: np.where(x >= 0, x, a * x),
        lambda e, a, b: te.select(e >= 0, e, e * a),
        0.01,
    ),
    "thresholded_relu": Activation(
        lambda x, a, b: np.where(x >= a, x, 0),
        lambda e, a, b: te.select(e >= a, e, te.const(0, e.dtype)),
    ),
    "scaled_tanh": Activation(
        lambda x, a, b: a * np.tanh(b * x), lambda e, a, b: te.tanh(e * b) * a, 1.0, 1.0
    ),
    "hard_sigmoid": Activation(
        lambda x, a, b: np.clip(a * x + b, 0, 1),
        lambda e, a, b: te.clip(e * a + b, 0, 1),
        0.2,
        0.5,
    ),
    "elu": Activation(
        lambda x, a, b: np.where(x >= 0, x, a * np.expm1(x)),
        lambda e, a, b: te.select(e >= 0, e, te.expm1(e) * a),
    ),
    "softsign": Activation(
        lambda x, a, b: x / (1 + np.abs(x)), lambda e, a, b: e / (te.abs(e) + 1.0)
    ),
    "softplus": Activation(
        lambda x, a, b: np.logaddexp(0, x),
        lambda e, a, b: te.maximum(e, 0) + te.log1p(te.exp(-te.abs(e))),
    ),
}


@dataclass(frozen=True)
class Chosen:
    """One activation with its parameters."""

    name: str
    alpha: float
    beta: float

    def value(self, x: Array) -> Array:
        return ACTIVATIONS[self.name].reference(x, self.alpha, self.beta)

    def formula(self, e: Expr) -> Expr:
        return ACTIVATIONS[self.name].formula(e, self.alpha, self.beta)


Choice = tuple[tuple[Chosen, ...], ...]


def choose(
    names: Strings, alphas: Floats, betas: Floats, default: Sequence[str], direction: str
) -> Choice:
    """The activations of each direction."""
    directions = DIRECTIONS[direction]
    wanted = list(names) or list(default) * directions
    if len(wanted) == len(default):
        wanted = wanted * directions
    if len(wanted) != len(default) * directions:
        raise UserError(
            f"there are {len(names)} activations, not {len(default)} for each direction"
        )
    chosen = [_one(n, alphas, betas, k) for k, n in enumerate(wanted)]
    size = len(default)
    return tuple(tuple(chosen[d * size : (d + 1) * size]) for d in range(directions))


def _one(name: str, alphas: Floats, betas: Floats, k: int) -> Chosen:
    if name not in ACTIVATIONS:
        raise UserError(f"unknown activation {name}", remedy=nearest(name, ACTIVATIONS))
    row = ACTIVATIONS[name]
    alpha = alphas[k] if k < len(alphas) and not math.isnan(alphas[k]) else row.alpha
    beta = betas[k] if k < len(betas) and not math.isnan(betas[k]) else row.beta
    return Chosen(name, alpha, beta)


def activated(choice: Choice, k: int, d: Expr, e: Expr, clip: float) -> Expr:
    """Activation number `k` of direction `d`, of what is clipped before."""
    e = te.clip(e, -clip, clip) if clip else e
    first = choice[0][k].formula(e)
    if len(choice) == 1 or choice[0][k] == choice[1][k]:
        return first
    return te.select(d == te.const(0), first, choice[1][k].formula(e))


def clipped(x: Array, clip: float) -> Array:
    return np.clip(x, -clip, clip) if clip else x


# ---- operands -----------------------------------------------------------------------------------


def check_operands(
    x: Value,
    w: Value,
    r: Value,
    b: Value | None,
    lengths: Value | None,
    states: Sequence[Value | None],
    gates: int,
    direction: str,
) -> None:
    """Refuse operands whose types or shapes do not fit."""
    if direction not in DIRECTIONS:
        raise UserError(f"unknown direction {direction}", remedy=nearest(direction, DIRECTIONS))
    given = [v for v in (b, *states) if v is not None]
    require_kind("float", x, w, r, *given)
    require_same_dtype(x, w, r, *given)
    if not x.ndim == w.ndim == r.ndim == 3:
        raise UserError(f"inputs and weights have 3 dimensions, not {x}, {w}, {r}")
    if lengths is not None:
        require_kind("integer", lengths)
    count, batch, hidden = DIRECTIONS[direction], x.shape[1], r.shape[2]
    rows = hidden * gates
    require_same_shape(w.shape, [count, rows, x.shape[2]], "w and D×(gates·H)×I")
    require_same_shape(r.shape, [count, rows, hidden], "r and D×(gates·H)×H")
    if b is not None:
        require_same_shape(b.shape, [count, rows * 2], "biases and D×(2·gates·H)")
    check_states(lengths, states, [count, batch, hidden])


def check_states(
    lengths: Value | None, states: Sequence[Value | None], wanted: Sequence[Dim]
) -> None:
    """Refuse first states that are not D×B×H, and lengths that are not one for each batch."""
    if lengths is not None:
        require_same_shape(lengths.shape, [wanted[1]], "lengths and batches")
    for state in states:
        if state is not None:
            require_same_shape(state.shape, wanted, "a state and D×B×H")


def check_scan(
    products: Value,
    weight: Value,
    lengths: Value | None,
    states: Sequence[Value | None],
    gates: int,
    direction: str,
) -> tuple[Expr, ...]:
    """Refuse operands of a scan that do not fit; the shape D×B×H of its states."""
    require_kind("float", products, weight)
    if products.ndim != 3 or weight.ndim != 3:
        raise UserError(f"products and weights have 3 dimensions, not {products}, {weight}")
    count, hidden = DIRECTIONS[direction], weight.shape[1]
    given = [count, hidden, hidden * gates]
    require_same_shape(weight.shape, given, "weights and D×H×(gates·H)")
    columns = hidden * (gates * count)
    require_equal(products.shape[2], columns, "products and D·gates·H")
    state = TensorType(products.dtype, [count, products.shape[1], hidden])
    check_states(lengths, states, state.shape)
    return state.shape


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


def initial(shape: Sequence[Expr], given: te.Tensor | None, work: Any, name: str) -> te.Tensor:
    """1×D×B×H: the states before the first step."""

    def element(_: Expr, d: Expr, b: Expr, j: Expr) -> Expr:
        return te.const(0, work) if given is None else te.cast(given[d, b, j], work)

    return te.compute((1, *shape), element, name=name)


def recurrent_product(
    state: te.Tensor, weight: te.Tensor, columns: tuple[Any, Any], name: str, back: int = 1
) -> te.Tensor:
    """What the state `back` steps ago gives for columns start … of D×H×(gates·H) weights."""
    start, count = columns
    k = te.reduce_axis(state.shape[3], name="k")

    def element(t: Expr, d: Expr, b: Expr, j: Expr) -> Any:
        factor = te.cast(weight[d, k, j + start if start is not None else j], state.dtype)
        before = t - back if back else t
        return te.sum(state[before, d, b, k] * factor, axis=k)

    return te.compute((*state.shape[:3], count), element, name=name)


# ---- references ---------------------------------------------------------------------------------


def run_reference(
    x: Array,
    direction: str,
    lengths: Array | None,
    states: Sequence[Array],
    step: Callable[[int, Array, list[Array]], list[Array]],
) -> tuple[Array, list[Array]]:
    """All outputs of the first state, and the last states, by NumPy.

    `step(direction, x at a time, states)` gives the next states of the whole batch.
    """
    steps, batch = x.shape[:2]
    ends = np.full(batch, steps) if lengths is None else lengths
    y = np.zeros((steps, *states[0].shape), np.float64)
    final = [s.copy() for s in states]
    for d in range(DIRECTIONS[direction]):
        backwards = direction == "reverse" or d == 1
        for n in range(batch):
            own = [s[d, n : n + 1] for s in states]
            times = range(int(ends[n]))
            for t in reversed(times) if backwards else times:
                own = step(d, x[t, n : n + 1], own)
                y[t, d, n] = own[0][0]
            for target, value in zip(final, own, strict=True):
                target[d, n] = value[0]
    return y, final


def state_reference(given: Array | None, shape: Sequence[int]) -> Array:
    return np.zeros(shape) if given is None else given.astype(np.float64)


def biases_reference(b: Array | None, directions: int, size: int) -> tuple[Array, Array]:
    """Those of the inputs and those of the states."""
    both = np.zeros((directions, 2 * size)) if b is None else b.astype(np.float64)
    return both[:, :size], both[:, size:]
