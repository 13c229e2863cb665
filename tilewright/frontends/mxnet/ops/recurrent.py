"""The fused operator of recurrent networks: layers, directions, and all weights as one vector."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from tilewright.frontends.mxnet.node import Node, checked_axis
from tilewright.frontends.mxnet.table import converts
from tilewright.graph import Array, Value
from tilewright.support.errors import UserError

#: The graph's operator, its number of states, and MXNet's gate for each of its gates.
#: LSTM: input, forget, cell, output in MXNet; input, output, forget, cell in the graph.
#: GRU: reset, update, new in MXNet; update, reset, new in the graph.
_MODES: Final[dict[str, tuple[str, int, list[int]]]] = {
    "rnn_relu": ("rnn", 1, [0]),
    "rnn_tanh": ("rnn", 1, [0]),
    "lstm": ("lstm", 2, [0, 3, 1, 2]),
    "gru": ("gru", 1, [1, 0, 2]),
}


class _Weights:
    """The weights of all layers: matrices first, layer by layer, then all biases."""

    def __init__(self, flat: Array, order: list[int], hidden: int) -> None:
        self._flat, self._order, self._hidden, self._at = flat, order, hidden, 0

    def take(self, *columns: int) -> Array:
        """The next matrix, or vector, with its gates in the graph's order."""
        shape = (len(self._order), self._hidden, *columns)
        size = int(np.prod(shape))
        if self._at + size > self._flat.size:
            raise UserError(f"the weights are {self._flat.size} numbers", reason="more are needed")
        part = self._flat[self._at : self._at + size].reshape(shape)
        self._at += size
        return part[self._order].reshape(-1, *columns)


@converts("RNN")
def rnn(n: Node) -> list[Any]:
    b: Any = n.builder
    mode, hidden = n.text("mode"), n.integer("state_size")
    layers, directions = n.integer("num_layers"), 1 + n.flag("bidirectional")
    if mode not in _MODES or hidden < 1 or not 1 <= layers <= 1 << 10:
        raise UserError(f"{layers} layers of {hidden} in the mode {mode[:40]}")
    if "projection_size" in n or n.flag("use_sequence_length"):
        raise UserError("projections and lengths of sequences are not supported")
    op, count, order = _MODES[mode]
    if n[1].constant is None:
        raise UserError("the weights must be parameters", reason="they are computed")
    weights = _Weights(n[1].constant.ravel(), order, hidden)
    x = n[0]
    inputs = [n.extent(x, 2), *[hidden * directions] * (layers - 1)]
    matrices = [
        [(weights.take(size), weights.take(hidden)) for _ in range(directions)] for size in inputs
    ]
    biases = [
        [np.concatenate([weights.take(), weights.take()]) for _ in range(directions)]
        for _ in inputs
    ]
    attrs: dict[str, Any] = {"direction": "bidirectional" if directions == 2 else "forward"}
    if op == "gru":
        attrs["linear_before_reset"] = True
    if mode == "rnn_relu":
        attrs["activations"] = ["relu"] * directions
    last: list[list[Value]] = []
    for layer, size in enumerate(inputs):
        del size
        operands = [np.stack([m[k] for m in matrices[layer]]) for k in (0, 1)]
        states = [_state(n, n[2 + k], layer, directions, x) for k in range(count)]
        y, *ends = b.emit(op, x, *operands, np.stack(biases[layer]), None, *states, **attrs)
        # T×D×B×H -> T×B×(D·H)
        x = b.reshape(b.transpose(y, axes=[0, 2, 1, 3]), shape=[*x.shape[:2], directions * hidden])
        last.append(ends)
    ends = [
        b.concat(*(e[k] for e in last), axis=0) if layers > 1 else last[0][k] for k in range(count)
    ]
    return [x, *ends]


def _state(n: Node, state: Value, layer: int, directions: int, x: Value) -> Value:
    """The first state of a layer, D×B×H; one that is the same for the whole batch is repeated."""
    b = n.builder
    if checked_axis(0, state.ndim) or state.ndim != 3:
        raise UserError(f"the state {state} has not three dimensions")
    first = layer * directions if n.extent(state, 0) > 1 else 0
    part = b.slice(state, starts=[first], ends=[first + directions], axes=[0])
    return b.expand(part, shape=[directions, x.shape[1], state.shape[2]])


@converts("_rnn_param_concat")
def param_concat(n: Node) -> Value:
    """Weights that Gluon concatenates for the operator above; all of them are parameters."""
    parts = [v.constant.ravel() for v in n.all if v.constant is not None]
    if len(parts) != len(n):
        raise UserError("the weights must be parameters", reason="some are computed")
    return n.builder.constant(np.concatenate(parts))
