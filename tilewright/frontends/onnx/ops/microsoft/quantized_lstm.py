"""LSTMs that quantize inputs and states to bytes while they run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from tilewright.frontends.onnx.node import Node
from tilewright.frontends.onnx.ops.recurrent import run_lstm
from tilewright.frontends.onnx.table import converts
from tilewright.graph import Value

_BIAS: Final = 3
_LENGTHS: Final = 4
_STATES: Final = (5, 6)
_PEEPHOLES: Final = 7


class _Weights(NamedTuple):
    """Weights of all directions, D×I×4H, with a scale and a zero point for each direction or
    column."""

    values: Value
    scale: Value
    zero: Value

    @classmethod
    def of(cls, n: Node, index: int, scale: int) -> _Weights:
        return cls(n[index], n[scale], n[scale + 1])

    def real(self, n: Node) -> Value:
        """D×4H×I in float."""
        b = n.builder
        shape = [self.values.shape[0], 1, self.values.shape[2] if self.scale.ndim == 2 else 1]
        scale, zero = b.reshape(self.scale, shape=shape), b.reshape(self.zero, shape=shape)
        whole = b.sub(b.cast(self.values, dtype="int32"), b.cast(zero, dtype="int32"))
        return b.transpose(b.mul(b.cast(whole, dtype=scale.dtype), scale), axes=[0, 2, 1])

    def product(self, n: Node, x: Value, d: int) -> Value:
        """`x`, in bytes that fit its range, by the weights of direction `d`."""
        b = n.builder
        stored, scale, zero = b.dynamic_quantize(x)
        total = b.matmul_integer(stored, self.values[d], zero, self.zero[d])
        return b.mul(b.cast(total, dtype=scale.dtype), b.mul(scale, self.scale[d]))


@converts("DynamicQuantizeLSTM", domain="com.microsoft")
def dynamic_quantize_lstm(n: Node) -> list[Value]:
    """An LSTM whose weights, I×4H for each direction, are quantized."""
    inputs, states = _Weights.of(n, 1, 8), _Weights.of(n, 2, 10)
    if not _is_plain(n):
        others = [n.get(k) for k in range(_BIAS, _PEEPHOLES + 1)]
        return run_lstm(n, [n[0], inputs.real(n), states.real(n), *others])
    directions = ["forward", "reverse"] if _direction(n) == "bidirectional" else [_direction(n)]
    found = [_run(n, inputs, states, d, way) for d, way in enumerate(directions)]
    every, h, c = zip(*found, strict=True)
    return [_stacked(n, every, axis=1), _stacked(n, h, axis=0), _stacked(n, c, axis=0)]


def _direction(n: Node) -> str:
    return n.text("direction", "forward")


def _stacked(n: Node, values: Sequence[Value], axis: int) -> Value:
    b = n.builder
    return b.concat(*(b.unsqueeze(v, axes=[axis]) for v in values), axis=axis)


def _is_plain(n: Node) -> bool:
    """Whether there are only gates: sequences of one length, and activations by default."""
    return (
        n.get(_LENGTHS) is None
        and n.get(_PEEPHOLES) is None
        and not n.texts("activations", [])
        and not n.flag("input_forget")
        and n.real("clip", 0.0) == 0
    )


def _run(
    n: Node, inputs: _Weights, states: _Weights, d: int, direction: str
) -> tuple[Value, Value, Value]:
    """Outputs T×B×H of a direction, and the last states."""
    b, hidden = n.builder, states.values.shape[1]
    rows = inputs.product(n, n[0], d)
    if (bias := n.get(_BIAS)) is not None:
        size = 4 * hidden
        rows = b.add(rows, b.add(bias[d, :size], bias[d, size:]))
    rows = b.flip(rows, axes=[0]) if direction == "reverse" else rows

    def step(i: Value, h: Value, c: Value) -> tuple[list[Value], list[Value]]:
        total = b.add(b.gather(rows, i, axis=0), states.product(n, h, d))
        entry, out, forget, cell = b.split(total, sizes=[hidden] * 4, axis=-1)
        kept = b.mul(b.sigmoid(forget), c)
        c = b.add(kept, b.mul(b.sigmoid(entry), b.tanh(cell)))
        h = b.mul(b.sigmoid(out), b.tanh(c))
        return [h, c], [h]

    count = b.index(b.shape_of(n[0]), 0)
    h, c, every = b.loop(count, [_first(n, k, d) for k in _STATES], step)
    return (b.flip(every, axes=[0]) if direction == "reverse" else every), h, c


def _first(n: Node, index: int, d: int) -> Value:
    """B×H: a state before the first step."""
    given = n.get(index)
    if given is not None:
        return given[d]
    return n.builder.full(n.scalar(0.0, n[0]), shape=[n[0].shape[1], n[2].shape[1]])
