"""Gated recurrent units and plain recurrent networks: one product for all inputs, then a scan."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.graph.attributes import Floats, Strings
from tilewright.graph.ir import Array, Value
from tilewright.graph.op import op
from tilewright.graph.ops.lstm import input_products
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

_DEFAULT = ("sigmoid", "tanh")


# ---- gru ----------------------------------------------------------------------------------------


@op
def gru(
    x: Value,
    w: Value,
    r: Value,
    b: Value | None = None,
    lengths: Value | None = None,
    h0: Value | None = None,
    *,
    direction: str = "forward",
    activations: Strings = (),
    alphas: Floats = (),
    betas: Floats = (),
    clip: float = 0.0,
    linear_before_reset: bool = False,
) -> tuple[Type, ...]:
    """(y: T×D×B×H, last h: D×B×H); gates in the order update, reset, hidden.

    With `linear_before_reset`, the reset gate applies to the product with the state instead.
    """
    check_operands(x, w, r, b, lengths, (h0,), 3, direction)
    choose(activations, alphas, betas, _DEFAULT, direction)
    state = TensorType(x.dtype, [DIRECTIONS[direction], x.shape[1], r.shape[2]])
    return TensorType(x.dtype, [x.shape[0], *state.shape]), state


@gru.reference
def gru_reference(
    x: Array,
    w: Array,
    r: Array,
    b: Array | None,
    lengths: Array | None,
    h0: Array | None,
    *,
    direction: str,
    activations: Strings,
    alphas: Floats,
    betas: Floats,
    clip: float,
    linear_before_reset: bool,
) -> tuple[Array, ...]:
    chosen = choose(activations, alphas, betas, _DEFAULT, direction)
    directions, hidden = DIRECTIONS[direction], r.shape[2]
    own, moved = biases_reference(b, directions, 3 * hidden)

    def step(d: int, now: Array, states: list[Array]) -> list[Array]:
        (h,) = states
        f, g = chosen[d]
        weights = r[d].astype(np.float64)
        given = now @ w[d].T.astype("f8") + own[d]
        of_state = h @ weights.T + moved[d]
        update = f.value(clipped((given + of_state)[:, :hidden], clip))
        reset = f.value(clipped((given + of_state)[:, hidden : 2 * hidden], clip))
        last = of_state[:, 2 * hidden :] * reset
        if not linear_before_reset:
            last = (reset * h) @ weights[2 * hidden :].T + moved[d, 2 * hidden :]
        new = g.value(clipped(given[:, 2 * hidden :] + last, clip))
        return [(1 - update) * new + update * h]

    states = [state_reference(h0, (directions, x.shape[1], hidden))]
    y, last = run_reference(x.astype(np.float64), direction, lengths, states, step)
    return y.astype(x.dtype), last[0].astype(x.dtype)


@gru.decompose
def gru_decompose(
    builder: Any,
    x: Value,
    w: Value,
    r: Value,
    b: Value | None,
    lengths: Value | None,
    h0: Value | None,
    **attrs: Any,
) -> Any:
    hidden, inner = r.shape[2], None
    if b is not None and attrs["linear_before_reset"]:
        # The last bias of the state is inside what the reset gate multiplies: it goes along alone.
        own, moved = b[:, : hidden * 3], b[:, hidden * 3 :]
        inner = moved[:, hidden * 2 :]
        zero = builder.sub(inner, inner)
        b = builder.concat(own, moved[:, : hidden * 2], zero, axis=1)
    products, weight = input_products(builder, x, w, r, b)
    return builder.gru_scan(products, weight, inner, lengths, h0, **attrs)


@op
def gru_scan(
    products: Value,
    weight: Value,
    inner: Value | None = None,
    lengths: Value | None = None,
    h0: Value | None = None,
    *,
    direction: str = "forward",
    activations: Strings = (),
    alphas: Floats = (),
    betas: Floats = (),
    clip: float = 0.0,
    linear_before_reset: bool = False,
) -> tuple[Type, ...]:
    """`gru` whose inputs are multiplied already: T×B×(D·3H), and weights D×H×3H for the states;
    `inner`, D×H, is the bias that the reset gate multiplies."""
    shape = check_scan(products, weight, lengths, (h0,), 3, direction)
    state = TensorType(products.dtype, shape)
    return TensorType(products.dtype, [products.shape[0], *state.shape]), state


@gru_scan.reference
def gru_scan_reference(
    products: Array,
    weight: Array,
    inner: Array | None,
    lengths: Array | None,
    h0: Array | None,
    **attrs: Any,
) -> tuple[Array, ...]:
    directions, hidden, size = weight.shape
    w = np.eye(directions * size, dtype=products.dtype).reshape(directions, size, -1)
    b = np.zeros((directions, 2 * size), products.dtype)
    b[:, 5 * hidden :] = 0 if inner is None else inner
    return gru_reference(products, w, weight.swapaxes(1, 2), b, lengths, h0, **attrs)


@gru_scan.compute
def gru_scan_compute(
    products: te.Tensor,
    weight: te.Tensor,
    inner: te.Tensor | None,
    lengths: te.Tensor | None,
    h0: te.Tensor | None,
    *,
    direction: str,
    activations: Strings,
    alphas: Floats,
    betas: Floats,
    clip: float,
    linear_before_reset: bool,
    out: tuple[TensorType, ...],
) -> tuple[te.Tensor, ...]:
    chosen = choose(activations, alphas, betas, _DEFAULT, direction)
    dtype, work = products.dtype, accumulator(products.dtype)
    steps, hidden = products.shape[0], weight.shape[1]
    clock = Clock(direction, steps, lengths)
    shape = (steps + 1, *out[1].shape)
    h = te.placeholder(shape, work, "h_state")
    count = weight.shape[2] if linear_before_reset else hidden * 2
    moved = recurrent_product(h, weight, (None, count), "moved")

    def given(k: int, t: Expr, d: Expr, b: Expr, j: Expr) -> Expr:
        place = clock.turned(d, b, t - 1)
        return te.cast(products[place, b, d * weight.shape[2] + (hidden * k + j)], work)

    def gate(k: int, t: Expr, d: Expr, b: Expr, j: Expr) -> Expr:
        value = given(k, t, d, b, j) + moved[t, d, b, hidden * k + j]
        return activated(chosen, 0, d, value, clip)

    if linear_before_reset:

        def reset(t: Expr, d: Expr, b: Expr, j: Expr) -> Expr:
            value = moved[t, d, b, hidden * 2 + j]
            value = value if inner is None else value + te.cast(inner[d, j], work)
            return gate(1, t, d, b, j) * value

        last = te.compute(shape, reset, name="reset")
    else:

        def kept(t: Expr, d: Expr, b: Expr, j: Expr) -> Expr:
            return gate(1, t, d, b, j) * h[t - 1, d, b, j]

        reset_state = te.compute(shape, kept, name="reset")
        last = recurrent_product(reset_state, weight, (hidden * 2, hidden), "last", back=0)

    def next_state(t: Expr, d: Expr, b: Expr, j: Expr) -> Expr:
        old = h[t - 1, d, b, j]
        update = gate(0, t, d, b, j)
        new = activated(chosen, 1, d, given(2, t, d, b, j) + last[t, d, b, j], clip)
        return clock.kept(b, t - 1, (1 - update) * new + update * old, old)

    new_h = te.compute(shape, next_state, name="h")
    states = te.scan(initial(out[1].shape, h0, work, "h_first"), new_h, h, name="gru")
    return clock.output(states, dtype, "y"), clock.last(states, dtype, "last_h")


# ---- rnn ----------------------------------------------------------------------------------------


@op
def rnn(
    x: Value,
    w: Value,
    r: Value,
    b: Value | None = None,
    lengths: Value | None = None,
    h0: Value | None = None,
    *,
    direction: str = "forward",
    activations: Strings = (),
    alphas: Floats = (),
    betas: Floats = (),
    clip: float = 0.0,
) -> tuple[Type, ...]:
    """(y: T×D×B×H, last h: D×B×H) of a network with one gate."""
    check_operands(x, w, r, b, lengths, (h0,), 1, direction)
    choose(activations, alphas, betas, ("tanh",), direction)
    state = TensorType(x.dtype, [DIRECTIONS[direction], x.shape[1], r.shape[2]])
    return TensorType(x.dtype, [x.shape[0], *state.shape]), state


@rnn.reference
def rnn_reference(
    x: Array,
    w: Array,
    r: Array,
    b: Array | None,
    lengths: Array | None,
    h0: Array | None,
    *,
    direction: str,
    activations: Strings,
    alphas: Floats,
    betas: Floats,
    clip: float,
) -> tuple[Array, ...]:
    chosen = choose(activations, alphas, betas, ("tanh",), direction)
    directions, hidden = DIRECTIONS[direction], r.shape[2]
    own, moved = biases_reference(b, directions, hidden)

    def step(d: int, now: Array, states: list[Array]) -> list[Array]:
        total = now @ w[d].T.astype("f8") + states[0] @ r[d].T.astype("f8") + own[d] + moved[d]
        return [chosen[d][0].value(clipped(total, clip))]

    states = [state_reference(h0, (directions, x.shape[1], hidden))]
    y, last = run_reference(x.astype(np.float64), direction, lengths, states, step)
    return y.astype(x.dtype), last[0].astype(x.dtype)


@rnn.decompose
def rnn_decompose(
    builder: Any,
    x: Value,
    w: Value,
    r: Value,
    b: Value | None,
    lengths: Value | None,
    h0: Value | None,
    **attrs: Any,
) -> Any:
    products, weight = input_products(builder, x, w, r, b)
    return builder.rnn_scan(products, weight, lengths, h0, **attrs)


@op
def rnn_scan(
    products: Value,
    weight: Value,
    lengths: Value | None = None,
    h0: Value | None = None,
    *,
    direction: str = "forward",
    activations: Strings = (),
    alphas: Floats = (),
    betas: Floats = (),
    clip: float = 0.0,
) -> tuple[Type, ...]:
    """`rnn` whose inputs are multiplied already: T×B×(D·H), and weights D×H×H for the states."""
    shape = check_scan(products, weight, lengths, (h0,), 1, direction)
    state = TensorType(products.dtype, shape)
    return TensorType(products.dtype, [products.shape[0], *state.shape]), state


@rnn_scan.reference
def rnn_scan_reference(
    products: Array, weight: Array, lengths: Array | None, h0: Array | None, **attrs: Any
) -> tuple[Array, ...]:
    directions, _, size = weight.shape
    w = np.eye(directions * size, dtype=products.dtype).reshape(directions, size, -1)
    return rnn_reference(products, w, weight.swapaxes(1, 2), None, lengths, h0, **attrs)


@rnn_scan.compute
def rnn_scan_compute(
    products: te.Tensor,
    weight: te.Tensor,
    lengths: te.Tensor | None,
    h0: te.Tensor | None,
    *,
    direction: str,
    activations: Strings,
    alphas: Floats,
    betas: Floats,
    clip: float,
    out: tuple[TensorType, ...],
) -> tuple[te.Tensor, ...]:
    chosen = choose(activations, alphas, betas, ("tanh",), direction)
    dtype, work = products.dtype, accumulator(products.dtype)
    clock = Clock(direction, products.shape[0], lengths)
    shape = (products.shape[0] + 1, *out[1].shape)
    h = te.placeholder(shape, work, "h_state")
    moved = recurrent_product(h, weight, (None, weight.shape[2]), "moved")

    def next_state(t: Expr, d: Expr, b: Expr, j: Expr) -> Expr:
        place = clock.turned(d, b, t - 1)
        given = te.cast(products[place, b, d * weight.shape[2] + j], work)
        new = activated(chosen, 0, d, given + moved[t, d, b, j], clip)
        return clock.kept(b, t - 1, new, h[t - 1, d, b, j])

    new_h = te.compute(shape, next_state, name="h")
    states = te.scan(initial(out[1].shape, h0, work, "h_first"), new_h, h, name="rnn")
    return clock.output(states, dtype, "y"), clock.last(states, dtype, "last_h")
