"""Recurrent networks: SimpleRNN, LSTM, GRU, and their cells in RNN.

Without masks, and with activations that the graph's networks have, a layer is one operator of the
graph; otherwise it is a loop over time. Time is axis 1 in Keras, axis 0 in the graph.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from tilewright.frontends.keras.activations import activated, activation_name
from tilewright.frontends.keras.config import Config, layer_spec
from tilewright.frontends.keras.layer import Layer, tensors
from tilewright.frontends.keras.table import converts
from tilewright.frontends.keras.weights import Weights
from tilewright.graph import Array, Value
from tilewright.support.errors import UserError

#: Activations that the graph's networks have, with their names and parameters there.
_KNOWN: Final[dict[str, tuple[str, float, float]]] = {
    "elu": ("elu", 1.0, 0.0),
    "hard_sigmoid": ("hard_sigmoid", 1 / 6, 0.5),
    "leaky_relu": ("leaky_relu", 0.2, 0.0),
    "linear": ("affine", 1.0, 0.0),
    "relu": ("relu", 1.0, 0.0),
    "sigmoid": ("sigmoid", 1.0, 0.0),
    "softplus": ("softplus", 1.0, 0.0),
    "softsign": ("softsign", 1.0, 0.0),
    "tanh": ("tanh", 1.0, 0.0),
}


@dataclass
class Cell:
    """The computation of one cell: its kind, its configuration and its weights."""

    kind: str
    config: Config
    kernel: Array
    recurrent: Array
    #: One row, or for a GRU that resets after the product two.
    bias: Array | None

    @property
    def units(self) -> int:
        return self.recurrent.shape[0]

    @property
    def states(self) -> int:
        return 2 if self.kind == "LSTM" else 1

    @property
    def resets_after(self) -> bool:
        # Files from before this option existed lack it.
        return self.kind == "GRU" and self.config.flag("reset_after")


_GATES: Final = {"SimpleRNN": 1, "GRU": 3, "LSTM": 4}


def _cell(kind: str, config: Config, stored: Weights) -> Cell:
    bias = "bias" if config.flag("use_bias", True) else None
    names = [m for m in ("kernel", "recurrent_kernel", bias) if m is not None]
    kernel, recurrent, *rest = stored.arrays(names)
    gates = _GATES[kind]
    wide = recurrent.shape[0] * gates if recurrent.ndim == 2 else -1
    if kernel.ndim != 2 or kernel.shape[1] != wide or recurrent.shape[1:] != (wide,):
        raise UserError(
            f"a {kind} has weights of the shapes {list(kernel.shape)} and {list(recurrent.shape)}"
        )
    return Cell(kind, config, kernel, recurrent, rest[0] if rest else None)


@converts("SimpleRNN", "GRU", "LSTM")
def network(n: Layer) -> Any:
    cell = _cell(n.kind, n.config, n.stored.child("cell", f"{n.kind.lower()}_cell"))
    return _finished(n, *_run(n, cell, n[0], _initial(n), n.mask))


@converts("RNN")
def rnn_of_cells(n: Layer) -> Any:
    given = n.config.raw("cell")
    outer = layer_spec(given)
    stored = n.stored.child("cell")
    inner = [given] if outer.kind != "StackedRNNCells" else outer.config.raw("cells", [])
    x, states, left = n[0], list[Value](), _initial(n)
    y = x
    seen: dict[str, int] = {}
    for entry in inner:
        spec = layer_spec(entry)
        kind = spec.kind.removesuffix("Cell")
        if kind not in _GATES:
            raise UserError(
                f"a cell of the class {spec.kind}", remedy=f"known: {', '.join(_GATES)}"
            )
        own = stored
        if outer.kind == "StackedRNNCells":
            plain = {"SimpleRNN": "simple_rnn_cell", "GRU": "gru_cell", "LSTM": "lstm_cell"}[kind]
            count = seen[plain] = seen.get(plain, -1) + 1
            own = stored.child("cells").child(f"{plain}_{count}" if count else plain, spec.name)
        cell = _cell(kind, spec.config, own)
        mine = left[: cell.states] if left else None
        left = left[cell.states :] if left else None
        y, last = _run(n, cell, x, mine, n.mask)
        states += last
        # The next cell gets time steps in their own order; `_run` reverses them if necessary.
        x = n.builder.flip(y, axes=[1]) if n.config.flag("go_backwards") else y
    return _finished(n, y, states)


def _initial(n: Layer) -> list[Value] | None:
    """Initial states, as an argument or after the input."""
    given = n.argument(1, "initial_state")
    found = list(tensors(given)) if given is not None else list(n.inputs[1:])
    return [v for v in found if v is not None] or None


def _finished(n: Layer, y: Value, states: Sequence[Value]) -> Any:
    """All time steps or the last one, with the states if they are requested."""
    if n.config.flag("stateful"):
        raise UserError(
            f"{n.spec.text} keeps its state between calls",
            remedy="build it with stateful=False, and initial states as inputs",
        )
    if n.config.flag("return_sequences"):
        result = n.masked(y, n.mask)
    else:
        result = states[0] if len(states) <= 2 else n.builder.index(y, (slice(None), -1))
    if n.config.flag("return_state"):
        return [result, *states]
    return result


def _run(
    n: Layer, cell: Cell, x: Value, initial: Sequence[Value] | None, mask: Value | None
) -> tuple[Value, list[Value]]:
    """All outputs, N×T×H in the order of computation, and the last states."""
    x = n.computed(x)
    if x.ndim != 3:
        raise UserError(f"{x} is no sequence of vectors")
    if mask is not None or not _is_known(n, cell):
        return _loop(n, cell, x, initial, mask)
    b = n.builder
    backwards = n.config.flag("go_backwards")
    operands = [b.transpose(x, axes=[1, 0, 2]), *_weights(n, cell), None]
    states = [b.unsqueeze(s, axes=[0]) for s in initial or ()]
    y, *last = b.emit(_operator(cell), *operands, *states, **_attributes(n, cell, backwards))
    y = b.transpose(b.squeeze(y, axes=[1]), axes=[1, 0, 2])
    if backwards:
        y = b.flip(y, axes=[1])
    return y, [b.squeeze(s, axes=[0]) for s in last]


def _operator(cell: Cell) -> str:
    return {"SimpleRNN": "rnn", "GRU": "gru", "LSTM": "lstm"}[cell.kind]


def _names(cell: Cell) -> list[str | None]:
    own = activation_name(cell.config.raw("activation", "tanh"))
    if cell.kind == "SimpleRNN":
        return [own]
    gates = activation_name(cell.config.raw("recurrent_activation", "sigmoid"))
    return [gates, own] if cell.kind == "GRU" else [gates, own, own]


def _is_known(n: Layer, cell: Cell) -> bool:
    return all(name in _KNOWN for name in _names(cell))


def _attributes(n: Layer, cell: Cell, backwards: bool) -> dict[str, Any]:
    rows = [_KNOWN[name] for name in _names(cell) if name is not None]
    slopes = [0.2 if row[0] == "hard_sigmoid" and n.importer.is_old else row[1] for row in rows]
    attributes: dict[str, Any] = {
        "direction": "reverse" if backwards else "forward",
        "activations": [row[0] for row in rows],
        "alphas": slopes,
        "betas": [row[2] for row in rows],
    }
    if cell.kind == "GRU":
        attributes["linear_before_reset"] = cell.resets_after
    return attributes


def _weights(n: Layer, cell: Cell) -> list[Value | None]:
    """w, r and b as in the graph's networks: a direction in front, gates as rows."""
    w, r = (_ordered(cell, a).T[None] for a in (cell.kernel, cell.recurrent))
    if cell.bias is None:
        return [n.weight(w), n.weight(r), None]
    rows = cell.bias if cell.bias.ndim == 2 else np.stack([cell.bias, np.zeros_like(cell.bias)])
    if rows.shape != (2, cell.kernel.shape[1]):
        raise UserError(f"a {cell.kind} has a bias of the shape {list(cell.bias.shape)}")
    flat = np.concatenate([_ordered(cell, row) for row in rows])[None]
    return [n.weight(w), n.weight(r), n.weight(flat)]


def _ordered(cell: Cell, array: Array) -> Array:
    """Gates in the graph's order: an LSTM has its output gate second, Keras's is last."""
    if cell.kind != "LSTM":
        return array
    i, f, c, o = np.split(array, 4, axis=-1)
    return np.concatenate([i, o, f, c], axis=-1)


# ---- as a loop ----------------------------------------------------------------------------------


def _loop(
    n: Layer, cell: Cell, x: Value, initial: Sequence[Value] | None, mask: Value | None
) -> tuple[Value, list[Value]]:
    """A loop over time steps; where the mask is false, states stay as they are."""
    b = n.builder
    if n.config.flag("go_backwards"):
        x = b.flip(x, axes=[1])
        mask = None if mask is None else b.flip(mask, axes=[1])
    zeros = b.full(n.scalar(0, x), shape=[x.shape[0], cell.units])
    states = list(initial) if initial else [zeros] * cell.states
    if len(states) != cell.states:
        raise UserError(f"{len(states)} initial states are given, not {cell.states}")
    step = _step(n, cell)
    count = b.reshape(b.shape_of(x, start=1, end=2), shape=[])
    # Masked steps repeat the output before them, or give zeros.
    zero_output = n.config.flag("zero_output_for_mask")

    def trip(i: Value, *carried: Value) -> Any:
        before, previous = carried[:-1], carried[-1]
        after = step(b.gather(x, i, axis=1), before)
        output = after[0]
        if mask is not None:
            keeps = b.unsqueeze(b.gather(mask, i, axis=1), axes=[1])
            after = [b.where(keeps, new, old) for new, old in zip(after, before, strict=True)]
            other = zeros if zero_output else previous
            output = b.where(keeps, output, other)
        return [*after, output], [output]

    results = b.loop(count, [*states, zeros], trip)
    *last, _, stacked = results
    return b.transpose(stacked, axes=[1, 0, 2]), list(last)


Step = Callable[[Value, Sequence[Value]], list[Value]]


def _step(n: Layer, cell: Cell) -> Step:
    b = n.builder
    w, r = n.weight(cell.kernel), n.weight(cell.recurrent)
    rows = [] if cell.bias is None else [n.weight(row) for row in np.atleast_2d(cell.bias)]
    own = cell.config.raw("activation", "tanh")
    gate = cell.config.raw("recurrent_activation", "sigmoid")

    def of_input(x: Value) -> Value:
        made = b.matmul(x, w)
        return made + rows[0] if rows else made

    def parts(value: Value, count: int) -> list[Value]:
        return list(b.split(value, sizes=[cell.units] * count, axis=-1))

    def simple(x: Value, states: Sequence[Value]) -> list[Value]:
        return [activated(n, of_input(x) + b.matmul(states[0], r), own)]

    def lstm(x: Value, states: Sequence[Value]) -> list[Value]:
        h, c = states
        i, f, g, o = parts(of_input(x) + b.matmul(h, r), 4)
        i, f, o = (activated(n, v, gate) for v in (i, f, o))
        c = f * c + i * activated(n, g, own)
        return [o * activated(n, c, own), c]

    def gru(x: Value, states: Sequence[Value]) -> list[Value]:
        (h,) = states
        xz, xr, xh = parts(of_input(x), 3)
        if cell.resets_after:
            moved = b.matmul(h, r)
            hz, hr, hh = parts(moved + rows[1] if len(rows) > 1 else moved, 3)
            z, reset = activated(n, xz + hz, gate), activated(n, xr + hr, gate)
            new = activated(n, xh + reset * hh, own)
        else:
            rz, rr, rh = parts(r, 3)
            z = activated(n, xz + b.matmul(h, rz), gate)
            reset = activated(n, xr + b.matmul(h, rr), gate)
            new = activated(n, xh + b.matmul(reset * h, rh), own)
        return [z * h + (1.0 - z) * new]

    return {"SimpleRNN": simple, "LSTM": lstm, "GRU": gru}[cell.kind]
