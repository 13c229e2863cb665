"""Recurrent networks: all layers and directions of one call, as operators of one layer each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from tilewright.frontends.torch.node import Node
from tilewright.frontends.torch.table import converts
from tilewright.graph import Value
from tilewright.support.errors import UserError


class _Kind(NamedTuple):
    """A kind of network: graph operator, number of states, and torch's gate for each gate."""

    op: str
    states: int
    gates: tuple[int, ...]
    #: The activation for each direction; none: the defaults, which are torch's.
    activation: str = ""


#: Gates of LSTM: input, forget, cell, output in torch; input, output, forget, cell here.
#: Gates of GRU: reset, update, new in torch; update, reset, new here.
_KINDS: Final = {
    "lstm": _Kind("lstm", 2, (0, 3, 1, 2)),
    "gru": _Kind("gru", 1, (1, 0, 2)),
    "rnn_tanh": _Kind("rnn", 1, (0,)),
    "rnn_relu": _Kind("rnn", 1, (0,), "relu"),
}


class _Weights(NamedTuple):
    """The weights of one direction of a layer, with torch's order of gates."""

    of_input: Value
    of_state: Value
    biases: tuple[Value, Value] | None
    projection: Value | None


@converts("lstm.data", "gru.data", "rnn_tanh.data", "rnn_relu.data")
def packed(n: Node) -> list[Value]:
    raise no_packed_sequences(n.op.partition(".")[0])


def no_packed_sequences(what: str) -> UserError:
    """The error for sequences of torch's that are packed."""
    return UserError(
        f"{what} of a packed sequence",
        reason="its steps have batches of different sizes",
        remedy="pass padded sequences, and mask what is behind their ends",
    )


@converts("lstm", "gru", "rnn_tanh", "rnn_relu")
def network(n: Node) -> list[Value]:
    kind = _KINDS[n.op.partition(".")[0]]
    if n["train"] and float(n["dropout"]) > 0:
        raise UserError(
            "a recurrent network drops elements at random between its layers",
            remedy="call .eval() on it, or build it with dropout=0",
        )
    b, batch_first = n.builder, bool(n["batch_first"])
    x = n.tensor("input")
    x = b.transpose(x, axes=[1, 0, 2]) if batch_first else x
    directions = 2 if n["bidirectional"] else 1
    layers = _layers(n, directions)
    given = n.tensors("hx") if kind.states == 2 else [n.tensor("hx")]
    ends: list[list[Value]] = []
    for k, weights in enumerate(layers):
        states = [
            b.slice(s, starts=[k * directions], ends=[(k + 1) * directions], axes=[0])
            for s in given
        ]
        if weights[0].projection is None:
            y, *last = _layer(n, kind, x, weights, states)
        else:
            y, *last = _projected(n, x, weights, states)
        # T×D×B×H -> T×B×(D·H)
        width = y.shape[1] * y.shape[3]
        x = b.reshape(b.transpose(y, axes=[0, 2, 1, 3]), shape=[*y.shape[:1], y.shape[2], width])
        ends.append(last)
    last_states = [
        b.concat(*states, axis=0) if len(layers) > 1 else states[0]
        for states in zip(*ends, strict=True)
    ]
    return [b.transpose(x, axes=[1, 0, 2]) if batch_first else x, *last_states]


def _layers(n: Node, directions: int) -> list[list[_Weights]]:
    """The weights of all layers, by direction."""
    params = n.tensors("params")
    count, has_biases = int(n["num_layers"]), bool(n["has_biases"])
    # A weight after two weights and two biases is a projection.
    is_projected = len(params) // (count * directions) == (5 if has_biases else 3)
    left = iter(params)

    def cell() -> _Weights:
        of_input, of_state = next(left), next(left)
        biases = (next(left), next(left)) if has_biases else None
        return _Weights(of_input, of_state, biases, next(left) if is_projected else None)

    return [[cell() for _ in range(directions)] for _ in range(count)]


def _ordered(n: Node, kind: _Kind, weight: Value) -> Value:
    """A weight whose rows are the gates in the graph's order."""
    if len(kind.gates) == 1:
        return weight
    size = weight.shape[0] // len(kind.gates)
    parts = n.builder.emit_all("split", [weight], {"sizes": [size] * len(kind.gates), "axis": 0})
    return n.builder.concat(*(parts[g] for g in kind.gates), axis=0)


def _layer(
    n: Node, kind: _Kind, x: Value, weights: Sequence[_Weights], states: Sequence[Value]
) -> list[Value]:
    """One layer, both directions of it: y of T×D×B×H, and the last states."""
    b = n.builder

    def stacked(parts: Sequence[Value]) -> Value:
        single = [b.unsqueeze(p, axes=[0]) for p in parts]
        return b.concat(*single, axis=0) if len(single) > 1 else single[0]

    of_input = stacked([_ordered(n, kind, w.of_input) for w in weights])
    of_state = stacked([_ordered(n, kind, w.of_state) for w in weights])
    biases = None
    if weights[0].biases is not None:
        pairs = [[_ordered(n, kind, v) for v in w.biases or ()] for w in weights]
        biases = stacked([b.concat(*pair, axis=0) for pair in pairs])
    attrs: dict[str, Any] = {"direction": "bidirectional" if len(weights) == 2 else "forward"}
    if kind.op == "gru":
        attrs["linear_before_reset"] = True
    if kind.activation:
        attrs["activations"] = [kind.activation] * len(weights)
    return list(b.emit(kind.op, x, of_input, of_state, biases, None, *states, **attrs))


# ---- LSTM with projections ----------------------------------------------------------------------


def _projected(
    n: Node, x: Value, weights: Sequence[_Weights], states: Sequence[Value]
) -> list[Value]:
    """One layer whose state is a product of what an LSTM gives: a loop over the steps."""
    b = n.builder
    results = [
        _steps(n, x, w, [_at(n, s, d) for s in states], backwards=d == 1)
        for d, w in enumerate(weights)
    ]
    joined: list[Value] = []
    for axis, parts in zip((1, 0, 0), zip(*results, strict=True), strict=True):
        single = [b.unsqueeze(p, axes=[axis]) for p in parts]
        joined.append(b.concat(*single, axis=axis) if len(single) > 1 else single[0])
    return joined


def _at(n: Node, states: Value, direction: int) -> Value:
    return n.builder.gather(states, n.constant(direction, "int64"), axis=0)


def _steps(
    n: Node, x: Value, weights: _Weights, states: Sequence[Value], *, backwards: bool
) -> list[Value]:
    """y of T×B×P, the last state and the last cell, of one direction."""
    b = n.builder
    projection = weights.projection
    assert projection is not None
    x = b.flip(x, axes=[0]) if backwards else x
    bias = None if weights.biases is None else b.add(*weights.biases)
    # Inputs are multiplied at once; the rest of the loop needs the state.
    products = b.dense(x, weights.of_input, bias)

    def step(t: Value, h: Value, c: Value) -> Any:
        now = b.add(b.gather(products, t, axis=0), b.dense(h, weights.of_state))
        size = now.shape[1] // 4
        i, f, g, o = b.emit_all("split", [now], {"sizes": [size] * 4, "axis": 1})
        c = b.add(b.mul(b.sigmoid(f), c), b.mul(b.sigmoid(i), b.tanh(g)))
        h = b.dense(b.mul(b.sigmoid(o), b.tanh(c)), projection)
        return None, [h, c], [h]

    h, c, y = b.loop(n.number(x.shape[0], "int64"), list(states), step)
    return [b.flip(y, axes=[0]) if backwards else y, h, c]
