"""Gated recurrent units: one product for all inputs, then a scan over time."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.graph.ir import Array, Value
from tilewright.graph.ir.attributes import Floats, Strings
from tilewright.graph.ir.op import op
from tilewright.graph.ir.types import TensorType, Type
from tilewright.graph.ops.recurrent.recurrent import (
    Cells,
    Rounding,
    as_network,
    biases_reference,
    exactly,
    input_products,
    network_types,
    run_reference,
    scan_types,
)
from tilewright.graph.ops.recurrent.recurrent_scan import RecurrentScan
from tilewright.ir import Expr
from tilewright.tensor import te

_DEFAULT = ("sigmoid", "tanh")


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
    cells = Cells.of(_DEFAULT, direction, activations, alphas, betas, clip)
    return network_types(cells, x, w, r, b, lengths, (h0,), gates=3)


@gru.reference
def gru_reference(
    x: Array,
    w: Array,
    r: Array,
    b: Array | None,
    lengths: Array | None,
    h0: Array | None,
    *,
    linear_before_reset: bool,
    rounded: Rounding = exactly,
    **attrs: Any,
) -> tuple[Array, ...]:
    cells, hidden = Cells.of(_DEFAULT, **attrs), r.shape[2]
    own, moved = biases_reference(b, cells.directions, 3 * hidden)

    def step(d: int, now: Array, states: list[Array]) -> list[Array]:
        (h,) = states
        weights = r[d].astype(np.float64)
        given = now @ w[d].T.astype("f8") + own[d]
        of_state = rounded(h) @ weights.T + moved[d]
        update = cells.gate_value(0, d, (given + of_state)[:, :hidden])
        reset = cells.gate_value(0, d, (given + of_state)[:, hidden : 2 * hidden])
        last = of_state[:, 2 * hidden :] * reset
        if not linear_before_reset:
            last = rounded(reset * h) @ weights[2 * hidden :].T + moved[d, 2 * hidden :]
        new = cells.gate_value(1, d, given[:, 2 * hidden :] + last)
        return [(1 - update) * new + update * h]

    return run_reference(cells, x, lengths, (h0,), hidden, step)


@gru.decompose
def gru_decompose(
    builder: Any,
    x: Value,
    w: Value,
    r: Value,
    b: Value | None,
    *others: Value | None,
    **attrs: Any,
) -> Any:
    hidden, inner = r.shape[2], None
    if b is not None and attrs["linear_before_reset"]:
        # The reset gate multiplies the last bias of the state as well, so that it is separate.
        own, moved = b[:, : hidden * 3], b[:, hidden * 3 :]
        inner = moved[:, hidden * 2 :]
        zero = builder.sub(inner, inner)
        b = builder.concat(own, moved[:, : hidden * 2], zero, axis=1)
    return builder.gru_scan(*input_products(builder, x, w, r, b), inner, *others, **attrs)


# ---- the scan -----------------------------------------------------------------------------------


@op
def gru_scan(
    products: Value,
    weight: Value,
    inner: Value | None = None,
    lengths: Value | None = None,
    h0: Value | None = None,
    scales: Value | None = None,
    *,
    direction: str = "forward",
    activations: Strings = (),
    alphas: Floats = (),
    betas: Floats = (),
    clip: float = 0.0,
    linear_before_reset: bool = False,
) -> tuple[Type, ...]:
    """`gru` whose inputs are multiplied already: T×B×(D·3H), and weights D×H×3H for the states,
    bytes where `scales` are given; `inner`, D×H, is the bias that the reset gate multiplies."""
    cells = Cells.of(_DEFAULT, direction, activations, alphas, betas, clip)
    return scan_types(cells, products, weight, lengths, (h0,), gates=3, scales=scales)


@gru_scan.reference
def gru_scan_reference(
    products: Array, weight: Array, inner: Array | None, *others: Array | None, **attrs: Any
) -> tuple[Array, ...]:
    directions, hidden, size = weight.shape
    b = np.zeros((directions, 2 * size), products.dtype)
    b[:, 5 * hidden :] = 0 if inner is None else inner
    network, rounded = as_network(products, weight, others[-1])
    return gru_reference(*network, b, *others[:-1], rounded=rounded, **attrs)


@gru_scan.compute
def gru_scan_compute(
    products: te.Tensor,
    weight: te.Tensor,
    inner: te.Tensor | None,
    lengths: te.Tensor | None,
    h0: te.Tensor | None,
    scales: te.Tensor | None,
    *,
    linear_before_reset: bool,
    out: tuple[TensorType, ...],
    **attrs: Any,
) -> tuple[te.Tensor, ...]:
    cells = Cells.of(_DEFAULT, **attrs)
    scan = RecurrentScan(cells, products, weight, lengths, out[1].shape, scales)
    h = scan.state("h")
    moved = scan.moved(h, (0, 3 if linear_before_reset else 2), "moved")

    def gate(k: int, t: Expr, d: Expr, b: Expr, j: Expr) -> Expr:
        value = scan.given(k, t, d, b, j) + moved[t, d, b, k, j]
        return cells.gate(0, d, value)

    def reset(t: Expr, d: Expr, b: Expr, j: Expr) -> Expr:
        """The state's part of the new state, gated by the reset gate."""
        if not linear_before_reset:
            return gate(1, t, d, b, j) * h[t - 1, d, b, j]
        value = moved[t, d, b, 2, j]
        value = value if inner is None else value + te.cast(inner[d, j], scan.work)
        return gate(1, t, d, b, j) * value

    behind = te.compute(scan.shape, reset, name="reset")
    last = None if linear_before_reset else scan.moved(behind, (2, 1), "last", back=0)

    def next_state(t: Expr, d: Expr, b: Expr, j: Expr) -> Expr:
        old = h[t - 1, d, b, j]
        update = gate(0, t, d, b, j)
        own = behind[t, d, b, j] if last is None else last[t, d, b, 0, j]
        new = cells.gate(1, d, scan.given(2, t, d, b, j) + own)
        return scan.clock.kept(b, t - 1, (1 - update) * new + update * old, old)

    return scan.run("gru", [h0], [te.compute(scan.shape, next_state, name="h")], [h])
