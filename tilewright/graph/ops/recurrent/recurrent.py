"""Helpers for recurrent networks: cells, operands, references; scans are in `recurrent_scan`.

Inputs are T×B×I (time, batch, input); weights D×(gates·H)×I and D×(gates·H)×H, one set for each
direction; biases D×(2·gates·H), those of the inputs first; states D×B×H. The inputs of all times
are multiplied at once; what remains is a scan over time. Its weights may be bytes, with a scale for
each column: states are then quantized to bytes at every step.

Results are y, T×D×B×H, and the last states.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.graph.ir import Array, Value
from tilewright.graph.ir.attributes import Floats, Strings
from tilewright.graph.ir.types import Dim, TensorType, Type
from tilewright.graph.ops.elementwise.elementwise import require_kind, require_same_dtype
from tilewright.graph.ops.forms.quantize_rows import LEAST
from tilewright.graph.ops.recurrent.activations import Choice, choose
from tilewright.graph.sizes.agreement import require_equal, require_same_shape
from tilewright.ir import DType, Expr
from tilewright.support.errors import UserError, nearest
from tilewright.tensor import te

_INT8, _INT32 = DType.of("int8"), DType.of("int32")
#: The largest magnitude of a state in bytes.
GREATEST = 127
#: Operators that are scans: products of weights with a state at every step.
SCANS = ("lstm_scan", "gru_scan", "rnn_scan")
DIRECTIONS = {"forward": 1, "reverse": 1, "bidirectional": 2}


@dataclass(frozen=True)
class Cells:
    """The attributes of all networks: direction, activations, their bound."""

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
        """Values are clipped before activation number `k` of direction `d`."""
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
    """Refuse weights that have scales, but are not bytes."""
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
    states as D×H×(gates·H), so that weights of adjacent results are contiguous."""
    flat = builder.reshape(w, shape=[w.shape[0] * w.shape[1], w.shape[2]])
    bias = None
    if b is not None:
        size = w.shape[1]
        both = b[:, :size] + b[:, size:]
        bias = builder.reshape(both, shape=[w.shape[0] * size])
    return builder.dense(x, flat, bias), builder.transpose(r, axes=[0, 2, 1])


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
    """The biases of the inputs and those of the states."""
    both = np.zeros((directions, 2 * size)) if b is None else b.astype(np.float64)
    return both[:, :size], both[:, size:]


#: What is done to states before they are multiplied.
Rounding = Callable[[Array], Array]


def exactly(state: Array) -> Array:
    """States are multiplied as they are."""
    return state


def in_bytes(state: Array) -> Array:
    """The real values of states that are multiplied as bytes."""
    scale = np.abs(state).max(axis=-1, keepdims=True, initial=0) / GREATEST
    with np.errstate(all="ignore"):
        return np.where(scale * GREATEST < LEAST, 0, np.rint(state / scale) * scale)


def as_network(
    products: Array, weight: Array, scales: Array | None
) -> tuple[tuple[Array, Array, Array], Rounding]:
    """The (x, w, r) of a network that computes a scan: its input weights are the identity; and the
    rounding of its states."""
    directions, size = weight.shape[0], weight.shape[2]
    w = np.eye(directions * size, dtype=products.dtype).reshape(directions, size, -1)
    if scales is None:
        return (products, w, weight.swapaxes(1, 2)), exactly
    return (products, w, (weight * scales[:, None]).swapaxes(1, 2)), in_bytes
