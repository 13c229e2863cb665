"""Steps of optimisers, from the preview training domain."""

from __future__ import annotations

from typing import Any, Final

from tilewright.frontends.onnx.node import Node
from tilewright.frontends.onnx.table import converts
from tilewright.graph import Value
from tilewright.support.errors import UserError

_DOMAIN: Final = "ai.onnx.preview.training"


def _groups(n: Node, count: int) -> list[list[Value]]:
    """The operands after rate and step, per tensor: itself, its gradient, its state."""
    rest = n.all_from(2)
    if not rest or len(rest) % count:
        raise UserError(f"{len(rest)} tensors do not make groups of {count}")
    size = len(rest) // count
    return [[rest[k + part * size] for part in range(count)] for k in range(size)]


def _outputs(results: list[tuple[Value, ...]]) -> list[Value]:
    """All first results, then all second ones, …"""
    return [value for column in zip(*results, strict=True) for value in column]


def _regularised(n: Node, x: Value, gradient: Value) -> Value:
    return x * n.real("norm_coefficient", 0.0) + gradient


@converts("Adagrad", domain=_DOMAIN)
def adagrad(n: Node) -> list[Value]:
    b = n.builder
    decay = n.scalar(n.real("decay_factor", 0.0), n[0])
    rate = b.div(n[0], b.cast(n[1], dtype=n[0].dtype) * decay + 1.0)

    def step(x: Value, gradient: Value, squares: Value) -> tuple[Value, ...]:
        g: Any = _regularised(n, x, gradient)
        total: Any = squares + g * g
        return x - rate * g / (b.sqrt(total) + n.real("epsilon", 0.0)), total

    return _outputs([step(*group) for group in _groups(n, 3)])


@converts("Adam", domain=_DOMAIN)
def adam(n: Node) -> list[Value]:
    b, alpha, beta = n.builder, n.real("alpha", 0.9), n.real("beta", 0.999)
    rate = _adjusted_rate(n, alpha, beta)

    def step(x: Value, gradient: Value, mean: Value, squares: Value) -> tuple[Value, ...]:
        g: Any = _regularised(n, x, gradient)
        v: Any = mean * alpha + g * (1 - alpha)
        h: Any = squares * beta + g * g * (1 - beta)
        moved: Any = x - rate * v / (b.sqrt(h) + n.real("epsilon", 0.0))
        return moved * (1 - n.real("norm_coefficient_post", 0.0)), v, h

    return _outputs([step(*group) for group in _groups(n, 4)])


def _adjusted_rate(n: Node, alpha: float, beta: float) -> Any:
    """The rate, corrected for averages that start at zero, except in the first step."""
    b, rate = n.builder, n[0]
    count = b.cast(n[1], dtype=rate.dtype)
    first: Any = b.pow(n.scalar(alpha, rate), count)
    second: Any = b.pow(n.scalar(beta, rate), count)
    corrected = b.div(b.mul(rate, b.sqrt(1.0 - second)), 1.0 - first)
    return b.where(b.greater(n[1], 0), corrected, rate)


@converts("Momentum", domain=_DOMAIN)
def momentum(n: Node) -> list[Value]:
    b, alpha, rate = n.builder, n.real("alpha"), n[0]
    is_nesterov = n.text("mode") == "nesterov"
    beta = b.where(b.greater(n[1], 0), n.scalar(n.real("beta"), rate), n.scalar(1.0, rate))

    def step(x: Value, gradient: Value, mean: Value) -> tuple[Value, ...]:
        g: Any = _regularised(n, x, gradient)
        v: Any = mean * alpha + beta * g
        return x - rate * (g + v * alpha if is_nesterov else v), v

    return _outputs([step(*group) for group in _groups(n, 3)])
