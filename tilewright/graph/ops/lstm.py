"""Long short-term memory: one product for all inputs, then a scan over time."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.graph.agreement import require_same_shape
from tilewright.graph.attributes import Floats, Strings
from tilewright.graph.elementwise import require_same_dtype
from tilewright.graph.ir import Array, Value
from tilewright.graph.op import op
from tilewright.graph.recurrent import (
    DIRECTIONS,
    Clock,
    activated,
    biases_reference,
    check_operands,
    check_scan,
    choose,
    clipped,
    initial,
    recurrent_product,
    run_reference,
    state_reference,
)
from tilewright.graph.reduced import accumulator
from tilewright.graph.types import TensorType, Type
from tilewright.ir import Expr
from tilewright.tensor import te

_DEFAULT = ("sigmoid", "tanh", "tanh")


@op
def lstm(
    x: Value,
    w: Value,
    r: Value,
    b: Value | None = None,
    lengths: Value | None = None,
    h0: Value | None = None,
    c0: Value | None = None,
    p: Value | None = None,
    *,
    direction: str = "forward",
    activations: Strings = (),
    alphas: Floats = (),
    betas: Floats = (),
    clip: float = 0.0,
    input_forget: bool = False,
) -> tuple[Type, ...]:
    """(y: T×D×B×H, last h: D×B×H, last c: D×B×H); gates in the order input, output, forget, cell.

    `p`, D×3H, are peepholes of the first three. Activations: of the gates, of the cell, of the
    output, for each direction. `clip` bounds what goes into activations; 0 does not.
    """
    check_operands(x, w, r, b, lengths, (h0, c0), 4, direction)
    if p is not None:
        require_same_dtype(x, p)
        require_same_shape(p.shape, [DIRECTIONS[direction], r.shape[2] * 3], "peepholes and D×3H")
    choose(activations, alphas, betas, _DEFAULT, direction)
    state = TensorType(x.dtype, [DIRECTIONS[direction], x.shape[1], r.shape[2]])
    return TensorType(x.dtype, [x.shape[0], *state.shape]), state, state


@lstm.reference
def lstm_reference(
    x: Array,
    w: Array,
    r: Array,
    b: Array | None,
    lengths: Array | None,
    h0: Array | None,
    c0: Array | None,
    p: Array | None,
    *,
    direction: str,
    activations: Strings,
    alphas: Floats,
    betas: Floats,
    clip: float,
    input_forget: bool,
) -> tuple[Array, ...]:
    chosen = choose(activations, alphas, betas, _DEFAULT, direction)
    directions, hidden = DIRECTIONS[direction], r.shape[2]
    bias = sum(biases_reference(b, directions, 4 * hidden))
    peep = np.zeros((directions, 3 * hidden)) if p is None else p.astype(np.float64)
    shape = (directions, x.shape[1], hidden)

    def step(d: int, now: Array, states: list[Array]) -> list[Array]:
        h, c = states
        f, g, out = chosen[d]
        total = now @ w[d].T.astype("f8") + h @ r[d].T.astype("f8") + np.asarray(bias)[d]
        i, o, forget, cell = np.split(total, 4, axis=-1)
        pi, po, pf = np.split(peep[d], 3)
        i = f.value(clipped(i + pi * c, clip))
        forget = 1 - i if input_forget else f.value(clipped(forget + pf * c, clip))
        new = forget * c + i * g.value(clipped(cell, clip))
        return [f.value(clipped(o + po * new, clip)) * out.value(clipped(new, clip)), new]

    states = [state_reference(h0, shape), state_reference(c0, shape)]
    y, last = run_reference(x.astype(np.float64), direction, lengths, states, step)
    return y.astype(x.dtype), last[0].astype(x.dtype), last[1].astype(x.dtype)


@lstm.decompose
def lstm_decompose(
    builder: Any,
    x: Value,
    w: Value,
    r: Value,
    b: Value | None,
    lengths: Value | None,
    h0: Value | None,
    c0: Value | None,
    p: Value | None,
    **attrs: Any,
) -> Any:
    products, weight = input_products(builder, x, w, r, b)
    return builder.lstm_scan(products, weight, lengths, h0, c0, p, **attrs)


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


# ---- the scan -----------------------------------------------------------------------------------


@op
def lstm_scan(
    products: Value,
    weight: Value,
    lengths: Value | None = None,
    h0: Value | None = None,
    c0: Value | None = None,
    p: Value | None = None,
    *,
    direction: str = "forward",
    activations: Strings = (),
    alphas: Floats = (),
    betas: Floats = (),
    clip: float = 0.0,
    input_forget: bool = False,
) -> tuple[Type, ...]:
    """`lstm` whose inputs are multiplied already: T×B×(D·4H), and weights D×H×4H for the states."""
    shape = check_scan(products, weight, lengths, (h0, c0), 4, direction)
    state = TensorType(products.dtype, shape)
    return TensorType(products.dtype, [products.shape[0], *state.shape]), state, state


@lstm_scan.reference
def lstm_scan_reference(
    products: Array,
    weight: Array,
    lengths: Array | None,
    h0: Array | None,
    c0: Array | None,
    p: Array | None,
    **attrs: Any,
) -> tuple[Array, ...]:
    directions, size = weight.shape[0], weight.shape[2]
    # The products are the inputs of a network whose input weights are the identity.
    w = np.eye(directions * size, dtype=products.dtype).reshape(directions, size, -1)
    r = weight.swapaxes(1, 2)
    return lstm_reference(products, w, r, None, lengths, h0, c0, p, **attrs)


@lstm_scan.compute
def lstm_scan_compute(
    products: te.Tensor,
    weight: te.Tensor,
    lengths: te.Tensor | None,
    h0: te.Tensor | None,
    c0: te.Tensor | None,
    p: te.Tensor | None,
    *,
    direction: str,
    activations: Strings,
    alphas: Floats,
    betas: Floats,
    clip: float,
    input_forget: bool,
    out: tuple[TensorType, ...],
) -> tuple[te.Tensor, ...]:
    chosen = choose(activations, alphas, betas, _DEFAULT, direction)
    dtype, work = products.dtype, accumulator(products.dtype)
    steps, hidden = products.shape[0], weight.shape[1]
    clock = Clock(direction, steps, lengths)
    shape = (steps + 1, *out[1].shape)
    h, c = (te.placeholder(shape, work, f"{n}_state") for n in "hc")
    moved = recurrent_product(h, weight, (None, weight.shape[2]), "moved")

    def gate(k: int, t: Expr, d: Expr, b: Expr, j: Expr) -> Expr:
        place = clock.turned(d, b, t - 1)
        given = products[place, b, d * weight.shape[2] + (hidden * k + j)]
        return te.cast(given, work) + moved[t, d, b, hidden * k + j]

    def peep(k: int, d: Expr, j: Expr, cell: Expr, e: Expr) -> Expr:
        return e if p is None else e + te.cast(p[d, hidden * k + j], work) * cell

    def next_cell(t: Expr, d: Expr, b: Expr, j: Expr) -> Expr:
        old = c[t - 1, d, b, j]
        i = activated(chosen, 0, d, peep(0, d, j, old, gate(0, t, d, b, j)), clip)
        forget = 1 - i
        if not input_forget:
            forget = activated(chosen, 0, d, peep(2, d, j, old, gate(2, t, d, b, j)), clip)
        cell = activated(chosen, 1, d, gate(3, t, d, b, j), clip)
        return clock.kept(b, t - 1, forget * old + i * cell, old)

    new_c = te.compute(shape, next_cell, name="c")

    def next_state(t: Expr, d: Expr, b: Expr, j: Expr) -> Expr:
        cell = new_c[t, d, b, j]
        o = activated(chosen, 0, d, peep(1, d, j, cell, gate(1, t, d, b, j)), clip)
        value = o * activated(chosen, 2, d, cell, clip)
        return clock.kept(b, t - 1, value, h[t - 1, d, b, j])

    new_h = te.compute(shape, next_state, name="h")
    starts = [initial(out[1].shape, s, work, f"{n}_first") for n, s in (("h", h0), ("c", c0))]
    states, cells = te.scan(starts, [new_h, new_c], [h, c], name="lstm")
    y = clock.output(states, dtype, "y")
    return y, clock.last(states, dtype, "last_h"), clock.last(cells, dtype, "last_c")
