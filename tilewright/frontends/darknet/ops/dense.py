"""Layers over all of their input: dense ones and softmax."""

from __future__ import annotations

from tilewright.frontends.common.padding import simplified
from tilewright.frontends.darknet.layer import Layer
from tilewright.frontends.darknet.ops.activation import activated
from tilewright.frontends.darknet.table import converts
from tilewright.graph import Value, product
from tilewright.support.errors import UserError

_EPSILON = 1e-6


def flat(n: Layer, x: Value) -> tuple[Value, int]:
    """A value with one row for each image, and how many numbers a row has."""
    size = simplified(product(x.shape[1:]))
    if not isinstance(size, int):
        raise UserError(f"the sizes of {x} must be known", remedy="give them as numbers")
    return n.builder.reshape(x, shape=[x.shape[0], size]), size


@converts("connected")
def connected(n: Layer) -> Value:
    b, outputs = n.builder, n.positive("output", 1)
    x, inputs = flat(n, n.x)
    bias = n.weights.take(outputs)
    if n.weights.is_transposed:
        made = b.matmul(x, n.weights.take(inputs, outputs))
    else:
        made = b.matmul(x, n.weights.take(outputs, inputs), transpose_b=True)
    if n.flag("batch_normalize"):
        scale, mean, variance = (n.weights.take(outputs) for _ in range(3))
        made = b.batch_norm(made, scale, bias, mean, variance, epsilon=_EPSILON)
    else:
        made = b.add(made, bias)
    return activated(n, made, "logistic")


@converts("softmax")
def softmax(n: Layer) -> Value:
    n.refuse("tree")
    b, x, groups = n.builder, n.x, n.positive("groups", 1)
    temperature = n.real("temperature", 1.0)
    if n.flag("spatial"):
        return b.softmax(_cooled(n, x, temperature), axis=1)
    row, size = flat(n, x)
    if size % groups:
        raise UserError(f"{groups} groups of {size} numbers")
    parts = b.reshape(row, shape=[x.shape[0], groups, size // groups])
    made = b.softmax(_cooled(n, parts, temperature), axis=2)
    return b.reshape(made, shape=x.shape)


def _cooled(n: Layer, x: Value, temperature: float) -> Value:
    if temperature <= 0:
        raise UserError(f"the temperature is {temperature}")
    return x if temperature == 1.0 else n.builder.div(x, temperature)
