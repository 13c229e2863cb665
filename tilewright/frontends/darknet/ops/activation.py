"""Activations, an option of most layers, which can also be sections."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from tilewright.frontends.darknet.layer import Layer
from tilewright.frontends.darknet.table import converts
from tilewright.graph import Value
from tilewright.support.errors import UserError, nearest

_ACTIVATIONS: Final[dict[str, Callable[[Any, Value], Value]]] = {
    "linear": lambda _, x: x,
    "relu": lambda b, x: b.relu(x),
    "relu6": lambda b, x: b.clip(x, 0.0, 6.0),
    "leaky": lambda b, x: b.leaky_relu(x, alpha=0.1),
    "relie": lambda b, x: b.leaky_relu(x, alpha=0.01),
    "ramp": lambda b, x: b.add(b.relu(x), b.mul(x, 0.1)),
    "logistic": lambda b, x: b.sigmoid(x),
    "loggy": lambda b, x: b.sub(b.mul(b.sigmoid(x), 2.0), 1.0),
    "tanh": lambda b, x: b.tanh(x),
    "hardtan": lambda b, x: b.clip(x, -1.0, 1.0),
    "mish": lambda b, x: b.mish(x),
    "swish": lambda b, x: b.swish(x),
    "elu": lambda b, x: b.elu(x),
    "selu": lambda b, x: b.selu(x),
    "gelu": lambda b, x: b.gelu(x, approximate="tanh"),
}


def activated(n: Layer, x: Value, default: str) -> Value:
    """A layer's result after the activation of the option `activation`."""
    name = n.text("activation", default).lower()
    if name not in _ACTIVATIONS:
        raise UserError(
            f"the activation {name[:40]} is not known", remedy=nearest(name, _ACTIVATIONS)
        )
    return _ACTIVATIONS[name](n.builder, x)


@converts("activation")
def activation(n: Layer) -> Value:
    return activated(n, n.x, "linear")
