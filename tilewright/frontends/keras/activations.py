"""Activation functions by the names that configurations give them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from tilewright.frontends.keras.config import as_dict, layer_spec
from tilewright.frontends.keras.layer import Layer
from tilewright.graph import Value
from tilewright.support.errors import UserError, nearest

Function = Callable[[Layer, Value], Value]


def _plain(op: str, **attrs: Any) -> Function:
    return lambda n, x: n.builder.emit(op, x, **attrs)


def _hard_sigmoid(n: Layer, x: Value) -> Value:
    # The slope in Keras 2 is different.
    slope = 0.2 if n.importer.is_old else 1 / 6
    return n.builder.hard_sigmoid(x, alpha=slope, beta=0.5)


def _glu(n: Layer, x: Value) -> Value:
    half = x.shape[-1] // 2
    a, b = n.builder.split(x, sizes=[half, half], axis=-1)
    return a * n.builder.sigmoid(b)


def _hard_shrink(n: Layer, x: Value) -> Value:
    return n.builder.where(n.builder.abs(x) > 0.5, x, n.scalar(0, x))


def _squareplus(n: Layer, x: Value) -> Value:
    return (x + n.builder.sqrt(x * x + 4.0)) * 0.5


def _sparse_plus(n: Layer, x: Value) -> Value:
    b = n.builder
    middle = (x + 1.0) * (x + 1.0) * 0.25
    high = b.where(x < 1.0, middle, x)
    return b.where(x <= -1.0, n.scalar(0, x), high)


def _sparsemax(n: Layer, x: Value) -> Value:
    """Scores minus a threshold, which Keras computes from cumulative sums in the support."""
    b = n.builder
    count = x.shape[-1]
    ordered, _ = b.top_k(x, k=count, axis=-1)
    one = n.scalar(1, x)
    ranks = b.ramp(one, one, size=count)
    sums = b.cumsum(ordered, axis=-1)
    fits = ordered * ranks + 1.0 > sums
    support = b.sum(b.cast(fits, dtype=x.dtype), axes=[-1], keepdims=True)
    inside = b.sum(b.where(fits, sums, n.scalar(0, x)), axes=[-1], keepdims=True)
    return b.relu(x - (inside - 1.0) / support)


FUNCTIONS: Final[dict[str, Function]] = {
    "celu": _plain("celu"),
    "elu": _plain("elu"),
    "exponential": _plain("exp"),
    "gelu": _plain("gelu"),
    "glu": _glu,
    "hard_shrink": _hard_shrink,
    "hard_sigmoid": _hard_sigmoid,
    "hard_silu": _plain("hard_swish"),
    "hard_swish": _plain("hard_swish"),
    "hard_tanh": lambda n, x: n.builder.clip(x, n.scalar(-1, x), n.scalar(1, x)),
    "leaky_relu": _plain("leaky_relu", alpha=0.2),
    "linear": lambda n, x: x,
    "log_sigmoid": _plain("log_sigmoid"),
    "log_softmax": _plain("log_softmax", axis=-1),
    "mish": _plain("mish"),
    "relu": _plain("relu"),
    "relu6": lambda n, x: n.builder.clip(x, n.scalar(0, x), n.scalar(6, x)),
    "selu": _plain("selu"),
    "sigmoid": _plain("sigmoid"),
    "silu": _plain("swish"),
    "soft_shrink": _plain("shrink", lambd=0.5, bias=0.5),
    "softmax": _plain("softmax", axis=-1),
    "softplus": _plain("softplus"),
    "softsign": _plain("softsign"),
    "sparse_plus": _sparse_plus,
    "sparse_sigmoid": lambda n, x: n.builder.clip((x + 1.0) * 0.5, n.scalar(0, x), n.scalar(1, x)),
    "sparsemax": _sparsemax,
    "squareplus": _squareplus,
    "swish": _plain("swish"),
    "tanh": _plain("tanh"),
    "tanh_shrink": lambda n, x: x - n.builder.tanh(x),
}


def activation_name(given: Any) -> str | None:
    """The name of a function; None where a configuration has a layer instead."""
    if given is None:
        return "linear"
    if isinstance(given, str):
        return given
    entry = as_dict(given)
    if entry is None:
        raise UserError(f"an activation is {str(given)[:80]}")
    config = entry.get("config")
    return config if isinstance(config, str) else None


def activated(n: Layer, x: Value, given: Any) -> Value:
    """The result of an activation function, or of a layer in its place."""
    name = activation_name(given)
    if name is None:
        spec = layer_spec(given)
        return n.call(spec, n.stored.child("activation"), [x], {})
    if name not in FUNCTIONS:
        raise UserError(f"unknown activation {name}", remedy=nearest(name, FUNCTIONS))
    return FUNCTIONS[name](n, x)
