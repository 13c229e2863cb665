"""Recurrent networks, whose states are variables."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np

from tilewright.frontends.tflite.fixed_point import real, result_range, scaled
from tilewright.frontends.tflite.images import activated
from tilewright.frontends.tflite.integer_lstm import integer_lstm, is_integer_lstm
from tilewright.frontends.tflite.node import Node
from tilewright.frontends.tflite.products import is_integer
from tilewright.frontends.tflite.table import converts
from tilewright.graph import Value
from tilewright.ir import DType
from tilewright.support.errors import UserError

#: Activations of the graph's own cells.
_CELLS: Final = {"TANH": "tanh", "RELU": "relu"}


def _time_first(n: Node, x: Value, *, major: bool) -> Value:
    return x if major else n.builder.transpose(x, axes=(1, 0, 2))


def _real(n: Node, index: int) -> Value | None:
    """An operand as floats, if it is there."""
    return real(n, index) if n.has(index) else None


def _required(n: Node, index: int) -> Value:
    found = _real(n, index)
    if found is None:
        raise UserError(f"operand {index} is missing")
    return found


def _refuse_integers(n: Node) -> None:
    if is_integer(n):
        raise UserError(
            f"{n.op} of {n.tensor(0).type} is not supported",
            remedy="convert the model with float activations",
        )


def _keep(n: Node, index: int, value: Value) -> None:
    """Let a variable have a state from here on."""
    n.importer.assign(n.tensor(index).name, value)


def _joined(n: Node, parts: list[Value]) -> Value:
    """Operands of all gates as one, with an axis for directions in front."""
    b = n.builder
    return b.unsqueeze(parts[0] if len(parts) == 1 else b.concat(*parts, axis=0), axes=[0])


def _biases(n: Node, parts: list[Value]) -> Value:
    """Biases of all gates for inputs, and zeros for states."""
    zeros = n.builder.full(n.scalar(0, parts[0]), shape=parts[0].shape)
    return _joined(n, [*parts, *[zeros] * len(parts)])


# ---- networks with one gate ---------------------------------------------------------------------


def _rnn(n: Node, x: Value, at: int, hidden: int) -> tuple[Value, Value]:
    """T×B×H and the last state; weights, recurrent weights and bias are operands from `at` on."""
    b = n.builder
    weights, recurrent, bias = (_required(n, at + k) for k in range(3))
    if n.activation in _CELLS:
        operands = [*(_joined(n, [v]) for v in (weights, recurrent)), _biases(n, [bias]), None]
        first = b.unsqueeze(_required(n, hidden), axes=[0])
        y, last = b.rnn(x, *operands, first, activations=[_CELLS[n.activation]])
        return b.squeeze(y, axes=[1]), b.squeeze(last, axes=[0])

    def step(_: Value, state: Value, row: Value) -> Value:
        total = b.add(row, b.matmul(state, b.transpose(recurrent, axes=(1, 0))))
        return activated(n, total)

    rows = b.add(b.matmul(x, b.transpose(weights, axes=(1, 0))), bias)
    return _scanned(n, rows, _required(n, hidden), step)


def _scanned(n: Node, rows: Value, first: Value, step: Any) -> tuple[Value, Value]:
    """A scan over all rows of T×B×…; all states, and the last."""
    b = n.builder

    def body(i: Value, state: Value) -> Any:
        after = step(i, state, b.gather(rows, i, axis=0))
        return [after], [after]

    count = b.index(b.shape_of(rows), 0)
    last, every = b.loop(count, [first], body)
    return every, last


@converts("RNN")
def rnn(n: Node) -> Value:
    _refuse_integers(n)
    x = n.builder.unsqueeze(n[0], axes=[0])
    y, last = _rnn(n, x, 1, 4)
    _keep(n, 4, last)
    return n.builder.squeeze(y, axes=[0])


@converts("UNIDIRECTIONAL_SEQUENCE_RNN")
def sequence_rnn(n: Node) -> Value:
    _refuse_integers(n)
    major = n.option("time_major")
    y, last = _rnn(n, _time_first(n, n[0], major=major), 1, 4)
    _keep(n, 4, last)
    return _time_first(n, y, major=major)


@converts("BIDIRECTIONAL_SEQUENCE_RNN")
def bidirectional_rnn(n: Node) -> Any:
    _refuse_integers(n)
    if n.has(9):
        raise UserError("auxiliary inputs are not supported")
    b, major = n.builder, n.option("time_major")
    x = _time_first(n, n[0], major=major)
    forward, last = _rnn(n, x, 1, 4)
    backward, first = _rnn(n, b.flip(x, axes=[0]), 5, 8)
    _keep(n, 4, last)
    _keep(n, 8, first)
    return _both(n, forward, b.flip(backward, axes=[0]), major=major)


def _both(n: Node, forward: Value, backward: Value, *, major: bool) -> Any:
    made = [_time_first(n, v, major=major) for v in (forward, backward)]
    return n.builder.concat(*made, axis=2) if n.option("merge_outputs") else made


# ---- long short-term memory ---------------------------------------------------------------------


#: The position of the cell's gate, and the order of gates in the graph: output before forget.
_CELL: Final = 2
_ORDER: Final = (0, 3, 1, 2)


class _Gates(NamedTuple):
    """One each for the gates input, forget, cell and output; the first may be missing."""

    weights: list[Value | None]
    recurrent: list[Value | None]
    peepholes: list[Value | None]
    biases: list[Value | None]
    projection: Value | None
    projection_bias: Value | None
    norms: list[Value | None]


def _gates(n: Node, at: int, norms: int | None) -> _Gates:
    found = [_real(n, at + k) for k in range(17)]
    peepholes = [found[8], found[9], None, found[10]]
    scales = [None if norms is None else _real(n, norms + k) for k in range(4)]
    return _Gates(found[:4], found[4:8], peepholes, found[11:15], found[15], found[16], scales)


def _lstm(n: Node, x: Value, gates: _Gates, states: tuple[int, int]) -> Value:
    """T×B×outputs; the variables that `states` names keep the last state."""
    b = n.builder
    first = [_required(n, k) for k in states]
    if _is_plain(n, gates):
        every, *last = _by_cells(n, x, gates, first)
        for index, value in zip(states, last, strict=True):
            _keep(n, index, value)
        return every
    rows = [
        None if w is None else _biased(n, b.matmul(x, b.transpose(w, axes=(1, 0))), bias, norm)
        for w, bias, norm in zip(gates.weights, gates.biases, gates.norms, strict=True)
    ]

    def body(i: Value, output: Value, cell: Value) -> Any:
        given = [None if r is None else b.gather(r, i, axis=0) for r in rows]
        after = _step(n, gates, given, output, cell)
        return list(after), [after[0]]

    count = b.index(b.shape_of(x), 0)
    output, cell, every = b.loop(count, first, body)
    for index, value in zip(states, (output, cell), strict=True):
        _keep(n, index, value)
    return every


def _is_plain(n: Node, gates: _Gates) -> bool:
    """Whether the graph's own cells compute it: all gates, no projection, norms or bounds."""
    given = [*gates.weights, *gates.recurrent, *gates.biases]
    peepholes = [p for k, p in enumerate(gates.peepholes) if k != _CELL]
    return (
        all(v is not None for v in given)
        and len({p is None for p in peepholes}) == 1
        and not any(v is not None for v in (*gates.norms, gates.projection))
        and n.option("cell_clip") == 0
        and n.activation in _CELLS
    )


def _by_cells(n: Node, x: Value, gates: _Gates, first: list[Value]) -> list[Value]:
    """Outputs T×B×H, the last output and the last cell."""
    b, cell = n.builder, _CELLS[n.activation]

    def ordered(parts: list[Value | None]) -> list[Value]:
        return [v for k in _ORDER if (v := parts[k]) is not None]

    peepholes = ordered(gates.peepholes)
    y, *last = b.lstm(
        x,
        _joined(n, ordered(gates.weights)),
        _joined(n, ordered(gates.recurrent)),
        _biases(n, ordered(gates.biases)),
        None,
        *(b.unsqueeze(v, axes=[0]) for v in first),
        _joined(n, peepholes) if peepholes else None,
        activations=["sigmoid", cell, cell],
    )
    return [b.squeeze(y, axes=[1]), *(b.squeeze(v, axes=[0]) for v in last)]


def _biased(n: Node, x: Value, bias: Value | None, norm: Value | None) -> Value:
    """A bias is added at once, unless the sum is normalised first."""
    return x if bias is None or norm is not None else n.builder.add(x, bias)


def _step(
    n: Node, gates: _Gates, rows: list[Value | None], output: Value, cell: Value
) -> tuple[Value, Value]:
    b = n.builder

    def opened(k: int, state: Value) -> Value:
        total, recurrent = rows[k], gates.recurrent[k]
        assert total is not None and recurrent is not None
        total = b.add(total, b.matmul(output, b.transpose(recurrent, axes=(1, 0))))
        peephole, norm, bias = gates.peepholes[k], gates.norms[k], gates.biases[k]
        if peephole is not None:
            total = b.add(total, b.mul(state, peephole))
        if norm is not None:
            total = b.mul(_normalised(n, total), norm)
            total = total if bias is None else b.add(total, bias)
        return total

    forget = b.sigmoid(opened(1, cell))
    one = n.scalar(1, forget)
    entry = b.sub(one, forget) if rows[0] is None else b.sigmoid(opened(0, cell))
    fresh = activated(n, opened(2, cell))
    after = _held(n, b.add(b.mul(forget, cell), b.mul(entry, fresh)), n.option("cell_clip"))
    made = b.mul(b.sigmoid(opened(3, after)), activated(n, after))
    if gates.projection is not None:
        made = b.matmul(made, b.transpose(gates.projection, axes=(1, 0)))
        made = made if gates.projection_bias is None else b.add(made, gates.projection_bias)
        made = _held(n, made, n.option("proj_clip"))
    return made, after


def _normalised(n: Node, x: Value) -> Value:
    return n.builder.layer_norm(x, axis=-1, epsilon=1e-8)


def _held(n: Node, x: Value, limit: float) -> Value:
    return n.builder.clip(x, n.scalar(-limit, x), n.scalar(limit, x)) if limit > 0 else x


@converts("UNIDIRECTIONAL_SEQUENCE_LSTM")
def sequence_lstm(n: Node) -> Value:
    major = n.option("time_major")
    return _time_first(n, _any_lstm(n, _time_first(n, n[0], major=major)), major=major)


def _any_lstm(n: Node, x: Value) -> Value:
    """In integers where the inputs are."""
    if not is_integer_lstm(n):
        _refuse_integers(n)
        return _lstm(n, x, _gates(n, 1, 20), (18, 19))
    every, *states = integer_lstm(n, x)
    for index, value in zip((18, 19), states, strict=True):
        _keep(n, index, value)
    return every


@converts("LSTM")
def lstm(n: Node) -> Any:
    if n.option("kernel_type") == 1:
        _refuse_integers(n)
        return _basic_lstm(n)
    x = n.builder.unsqueeze(n[0], axes=[0])
    return n.builder.squeeze(_any_lstm(n, x), axes=[0])


def _basic_lstm(n: Node) -> list[Value]:
    """All gates by one product of input and last output: input, cell, forget, output."""
    b = n.builder
    joined = b.concat(n[0], n[1], axis=1)
    total = b.add(b.matmul(joined, b.transpose(real(n, 2), axes=(1, 0))), n[3])
    hidden = n[4].shape[1]
    entry, fresh, forget, out = b.split(total, sizes=[hidden] * 4, axis=1)
    cell = b.add(b.mul(b.sigmoid(forget), n[4]), b.mul(b.sigmoid(entry), b.tanh(fresh)))
    return [b.mul(b.sigmoid(out), b.tanh(cell)), cell, joined, total]


@converts("BIDIRECTIONAL_SEQUENCE_LSTM")
def bidirectional_lstm(n: Node) -> Any:
    _refuse_integers(n)
    if n.has(39):
        raise UserError("auxiliary inputs are not supported")
    b, major = n.builder, n.option("time_major")
    x = _time_first(n, n[0], major=major)
    forward = _lstm(n, x, _gates(n, 1, None), (35, 36))
    backward = _lstm(n, b.flip(x, axes=[0]), _gates(n, 18, None), (37, 38))
    return _both(n, forward, b.flip(backward, axes=[0]), major=major)


# ---- filters over time --------------------------------------------------------------------------


@converts("SVDF")
def svdf(n: Node) -> Value:
    """Features of the last steps, kept in the state, by weights over time; some filters a unit."""
    if is_integer(n):
        return _integer_svdf(n)
    b = n.builder
    fresh = b.matmul(n[0], b.transpose(real(n, 1), axes=(1, 0)))
    total = _over_time(n, fresh, real(n, 2))
    return activated(n, b.add(total, n[3]) if n.has(3) else total)


def _integer_svdf(n: Node) -> Value:
    """The same with bytes for inputs, and a state and weights over time of 16 bits."""
    if n.tensor(0).type != "int8" or n.tensor(4).type != "int16":
        _refuse_integers(n)
    b, state = n.builder, float(n.quantization(4).scale)
    weights = n.array(1)
    moved = -n.quantization(0).zero * weights.sum(axis=1, dtype=np.int64)
    total = b.matmul_integer(n[0], n.constant(np.ascontiguousarray(weights.T)))
    total = b.add(total, n.constant(moved.astype(np.int32)))
    factor = float(n.quantization(0).scale) * float(n.quantization(1).scale) / state
    fresh = scaled(n, total, factor, low=-32768, high=32767, dtype=DType.of("int16"))
    total = _over_time(n, fresh, b.cast(n[2], dtype="int32"))
    total = b.add(total, n[3]) if n.has(3) else total
    factor = state * float(n.quantization(2).scale) / float(n.out_quantization().scale)
    # The activation is ReLU, whose bound is that of the type: the zero point is the least byte.
    return scaled(n, total, factor, **result_range(n)._asdict())


def _over_time(n: Node, fresh: Value, over_time: Value) -> Value:
    """Sums over the last steps and the filters of a unit; the state keeps the steps."""
    b, batch = n.builder, n[0].shape[0]
    filters, memory = over_time.shape
    held = b.reshape(n[4], shape=[batch, filters, memory])
    held = b.slice(held, starts=[1], ends=[memory], axes=[2])
    held = b.concat(held, b.unsqueeze(fresh, axes=[2]), axis=2)
    _keep(n, 4, b.reshape(held, shape=[batch, filters * memory]))
    total = b.sum(b.mul(b.cast(held, dtype=over_time.dtype), over_time), axes=[2])
    return b.sum(b.reshape(total, shape=[batch, -1, n.option("rank")]), axes=[2])
