"""Recurrent layers. A second operand, T×B, says where sequences continue (1) or begin anew (0)."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.frontends.caffe.layer import Layer
from tilewright.frontends.caffe.table import converts
from tilewright.graph import Array, Value, product
from tilewright.support.errors import UserError


class _Sequence:
    """T×B×… as steps of products with weights, and the marks of where sequences continue."""

    def __init__(self, n: Layer, gates: int) -> None:
        if len(n.inputs) > 2:
            raise UserError("an operand beside the sequence and its marks is not supported")
        b, x = n.builder, n[0]
        self.hidden = n.param("recurrent_param").integer("num_output", 0)
        if self.hidden < 1:
            raise UserError(f"num_output is {self.hidden}")
        self.size = 1
        for k in range(2, x.ndim):
            self.size *= n.extent(x, k)
        self.batch = x.shape[1]
        weight = n.blob(0, gates * self.hidden, self.size)
        flat = b.reshape(x, shape=[product(x.shape[:2]), self.size])
        products = b.add(b.matmul(flat, _transposed(weight)), n.blob(1, gates * self.hidden))
        self.products = b.reshape(products, shape=[*x.shape[:2], gates * self.hidden])
        self.marks = b.reshape(n[1], shape=[*x.shape[:2], 1])
        self.length = b.reshape(b.shape_of(x, start=0, end=1), shape=[])

    def state(self, n: Layer) -> Value:
        return n.builder.full(np.float32(0), shape=[self.batch, self.hidden])


def _transposed(weight: Array) -> Array:
    return np.ascontiguousarray(weight.T)


@converts("LSTM")
def lstm(n: Layer) -> Value:
    """Gates in the order input, forget, output, cell."""
    b: Any = n.builder
    s = _Sequence(n, 4)
    recurrent = b.constant(_transposed(n.blob(2, 4 * s.hidden, s.hidden)))

    def step(i: Value, hidden: Value, cell: Value) -> Any:
        mark, given = (b.gather(v, i, axis=0) for v in (s.marks, s.products))
        gates = b.add(given, b.matmul(b.mul(hidden, mark), recurrent))
        enter, forget, leave, new = b.split(gates, sizes=[s.hidden] * 4, axis=1)
        kept = b.mul(b.sigmoid(forget), b.mul(cell, mark))
        cell = b.add(kept, b.mul(b.sigmoid(enter), b.tanh(new)))
        hidden = b.mul(b.sigmoid(leave), b.tanh(cell))
        return None, [hidden, cell], [hidden]

    return b.loop(s.length, [s.state(n), s.state(n)], step)[2]


@converts("RNN")
def rnn(n: Layer) -> Value:
    """A hidden state, and an output computed from it at each step, both through tanh."""
    b: Any = n.builder
    s = _Sequence(n, 1)
    recurrent = b.constant(_transposed(n.blob(2, s.hidden, s.hidden)))
    weight, bias = _transposed(n.blob(3, s.hidden, s.hidden)), n.blob(4, s.hidden)

    def step(i: Value, hidden: Value) -> Any:
        mark, given = (b.gather(v, i, axis=0) for v in (s.marks, s.products))
        hidden = b.tanh(b.add(given, b.matmul(b.mul(hidden, mark), recurrent)))
        return None, [hidden], [b.tanh(b.add(b.matmul(hidden, weight), bias))]

    return b.loop(s.length, [s.state(n)], step)[1]
