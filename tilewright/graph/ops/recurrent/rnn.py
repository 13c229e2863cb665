"""Recurrent networks with one gate: one product for all inputs, then a scan over time."""

from __future__ import annotations

from typing import Any

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

_DEFAULT = ("tanh",)


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
    cells = Cells.of(_DEFAULT, direction, activations, alphas, betas, clip)
    return network_types(cells, x, w, r, b, lengths, (h0,), gates=1)


@rnn.reference
def rnn_reference(
    x: Array,
    w: Array,
    r: Array,
    b: Array | None,
    lengths: Array | None,
    h0: Array | None,
    *,
    rounded: Rounding = exactly,
    **attrs: Any,
) -> tuple[Array, ...]:
    cells, hidden = Cells.of(_DEFAULT, **attrs), r.shape[2]
    own, moved = biases_reference(b, cells.directions, hidden)

    def step(d: int, now: Array, states: list[Array]) -> list[Array]:
        given = now @ w[d].T.astype("f8") + own[d] + moved[d]
        return [cells.gate_value(0, d, given + rounded(states[0]) @ r[d].T.astype("f8"))]

    return run_reference(cells, x, lengths, (h0,), hidden, step)


@rnn.decompose
def rnn_decompose(
    builder: Any,
    x: Value,
    w: Value,
    r: Value,
    b: Value | None,
    *others: Value | None,
    **attrs: Any,
) -> Any:
    return builder.rnn_scan(*input_products(builder, x, w, r, b), *others, **attrs)


# ---- the scan -----------------------------------------------------------------------------------


@op
def rnn_scan(
    products: Value,
    weight: Value,
    lengths: Value | None = None,
    h0: Value | None = None,
    scales: Value | None = None,
    *,
    direction: str = "forward",
    activations: Strings = (),
    alphas: Floats = (),
    betas: Floats = (),
    clip: float = 0.0,
) -> tuple[Type, ...]:
    """`rnn` whose inputs are multiplied already: T×B×(D·H), and weights D×H×H for the states,
    bytes where `scales` are given."""
    cells = Cells.of(_DEFAULT, direction, activations, alphas, betas, clip)
    return scan_types(cells, products, weight, lengths, (h0,), gates=1, scales=scales)


@rnn_scan.reference
def rnn_scan_reference(
    products: Array, weight: Array, *others: Array | None, **attrs: Any
) -> tuple[Array, ...]:
    network, rounded = as_network(products, weight, others[-1])
    return rnn_reference(*network, None, *others[:-1], rounded=rounded, **attrs)


@rnn_scan.compute
def rnn_scan_compute(
    products: te.Tensor,
    weight: te.Tensor,
    lengths: te.Tensor | None,
    h0: te.Tensor | None,
    scales: te.Tensor | None,
    *,
    out: tuple[TensorType, ...],
    **attrs: Any,
) -> tuple[te.Tensor, ...]:
    cells = Cells.of(_DEFAULT, **attrs)
    scan = RecurrentScan(cells, products, weight, lengths, out[1].shape, scales)
    h = scan.state("h")
    moved = scan.moved(h, (0, 1), "moved")

    def next_state(t: Expr, d: Expr, b: Expr, j: Expr) -> Expr:
        new = cells.gate(0, d, scan.given(0, t, d, b, j) + moved[t, d, b, 0, j])
        return scan.clock.kept(b, t - 1, new, h[t - 1, d, b, j])

    return scan.run("rnn", [h0], [te.compute(scan.shape, next_state, name="h")], [h])
