"""Long short-term memory: one product for all inputs, then a scan over time."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.graph.ir import Array, Value
from tilewright.graph.ir.attributes import Floats, Strings
from tilewright.graph.ir.op import op
from tilewright.graph.ir.types import TensorType, Type
from tilewright.graph.ops.elementwise.elementwise import require_same_dtype
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
from tilewright.graph.sizes.agreement import require_same_shape
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
    output, for each direction. `clip` bounds what goes into gates, not the cell; 0 does not.
    """
    cells = Cells.of(_DEFAULT, direction, activations, alphas, betas, clip)
    results = network_types(cells, x, w, r, b, lengths, (h0, c0), gates=4)
    if p is not None:
        require_same_dtype(x, p)
        require_same_shape(p.shape, [cells.directions, r.shape[2] * 3], "peepholes and D×3H")
    return results


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
    input_forget: bool,
    rounded: Rounding = exactly,
    **attrs: Any,
) -> tuple[Array, ...]:
    cells, hidden = Cells.of(_DEFAULT, **attrs), r.shape[2]
    own, moved = biases_reference(b, cells.directions, 4 * hidden)
    peep = np.zeros((cells.directions, 3 * hidden)) if p is None else p.astype(np.float64)

    def step(d: int, now: Array, states: list[Array]) -> list[Array]:
        h, c = states
        total = now @ w[d].T.astype("f8") + rounded(h) @ r[d].T.astype("f8") + own[d] + moved[d]
        i, o, forget, cell = np.split(total, 4, axis=-1)
        pi, po, pf = np.split(peep[d], 3)
        i = cells.gate_value(0, d, i + pi * c)
        forget = 1 - i if input_forget else cells.gate_value(0, d, forget + pf * c)
        new = forget * c + i * cells.gate_value(1, d, cell)
        return [cells.gate_value(0, d, o + po * new) * cells.value(2, d, new), new]

    return run_reference(cells, x, lengths, (h0, c0), hidden, step)


@lstm.decompose
def lstm_decompose(
    builder: Any,
    x: Value,
    w: Value,
    r: Value,
    b: Value | None,
    *others: Value | None,
    **attrs: Any,
) -> Any:
    return builder.lstm_scan(*input_products(builder, x, w, r, b), *others, **attrs)


# ---- the scan -----------------------------------------------------------------------------------


@op
def lstm_scan(
    products: Value,
    weight: Value,
    lengths: Value | None = None,
    h0: Value | None = None,
    c0: Value | None = None,
    p: Value | None = None,
    scales: Value | None = None,
    *,
    direction: str = "forward",
    activations: Strings = (),
    alphas: Floats = (),
    betas: Floats = (),
    clip: float = 0.0,
    input_forget: bool = False,
) -> tuple[Type, ...]:
    """`lstm` whose inputs are multiplied already: T×B×(D·4H), and weights D×H×4H for the states,
    bytes where `scales` are given."""
    cells = Cells.of(_DEFAULT, direction, activations, alphas, betas, clip)
    return scan_types(cells, products, weight, lengths, (h0, c0), gates=4, scales=scales)


@lstm_scan.reference
def lstm_scan_reference(
    products: Array, weight: Array, *others: Array | None, **attrs: Any
) -> tuple[Array, ...]:
    network, rounded = as_network(products, weight, others[-1])
    return lstm_reference(*network, None, *others[:-1], rounded=rounded, **attrs)


@lstm_scan.compute
def lstm_scan_compute(
    products: te.Tensor,
    weight: te.Tensor,
    lengths: te.Tensor | None,
    h0: te.Tensor | None,
    c0: te.Tensor | None,
    p: te.Tensor | None,
    scales: te.Tensor | None,
    *,
    input_forget: bool,
    out: tuple[TensorType, ...],
    **attrs: Any,
) -> tuple[te.Tensor, ...]:
    cells, hidden = Cells.of(_DEFAULT, **attrs), weight.shape[1]
    scan = RecurrentScan(cells, products, weight, lengths, out[1].shape, scales)
    h, c = scan.state("h"), scan.state("c")
    moved = scan.moved(h, (0, 4), "moved")

    def gate(k: int, t: Expr, d: Expr, b: Expr, j: Expr) -> Expr:
        return scan.given(k, t, d, b, j) + moved[t, d, b, k, j]

    def peep(k: int, d: Expr, j: Expr, cell: Expr, e: Expr) -> Expr:
        return e if p is None else e + te.cast(p[d, hidden * k + j], scan.work) * cell

    def next_cell(t: Expr, d: Expr, b: Expr, j: Expr) -> Expr:
        old = c[t - 1, d, b, j]
        i = cells.gate(0, d, peep(0, d, j, old, gate(0, t, d, b, j)))
        forget = 1 - i
        if not input_forget:
            forget = cells.gate(0, d, peep(2, d, j, old, gate(2, t, d, b, j)))
        cell = cells.gate(1, d, gate(3, t, d, b, j))
        return scan.clock.kept(b, t - 1, forget * old + i * cell, old)

    new_c = te.compute(scan.shape, next_cell, name="c")

    def next_state(t: Expr, d: Expr, b: Expr, j: Expr) -> Expr:
        cell = new_c[t, d, b, j]
        o = cells.gate(0, d, peep(1, d, j, cell, gate(1, t, d, b, j)))
        value = o * cells.activated(2, d, cell)
        return scan.clock.kept(b, t - 1, value, h[t - 1, d, b, j])

    new_h = te.compute(scan.shape, next_state, name="h")
    return scan.run("lstm", [h0, c0], [new_h, new_c], [h, c])
