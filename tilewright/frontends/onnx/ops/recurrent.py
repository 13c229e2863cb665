"""Recurrent networks."""

from __future__ import annotations

import math
from collections.abc import Container, Sequence
from typing import Any, Final

from tilewright.frontends.onnx.node import Node
from tilewright.frontends.onnx.table import converts
from tilewright.graph import Value
from tilewright.support.errors import UserError

#: Activations that take a parameter from the list, in order.
_WITH_ALPHA: Final = frozenset(
    "affine elu hard_sigmoid leaky_relu scaled_tanh thresholded_relu".split()
)
_WITH_BETA: Final = frozenset("affine hard_sigmoid scaled_tanh".split())

#: ONNX's activations, by names of the graph's.
_ACTIVATIONS: Final = {
    "affine": "affine",
    "elu": "elu",
    "hardsigmoid": "hard_sigmoid",
    "leakyrelu": "leaky_relu",
    "relu": "relu",
    "scaledtanh": "scaled_tanh",
    "sigmoid": "sigmoid",
    "softplus": "softplus",
    "softsign": "softsign",
    "tanh": "tanh",
    "thresholdedrelu": "thresholded_relu",
}


@converts("RNN")
def rnn(n: Node) -> list[Value]:
    return _run(n, states=1)


@converts("GRU")
def gru(n: Node) -> list[Value]:
    return _run(n, states=1, linear_before_reset=n.flag("linear_before_reset"))


@converts("LSTM")
def lstm(n: Node) -> list[Value]:
    return _run(n, states=2, input_forget=n.flag("input_forget"))


def run_lstm(n: Node, operands: list[Value | None]) -> list[Value]:
    """An LSTM on other operands than the node's."""
    attrs = {"input_forget": n.flag("input_forget"), **_shared(n)}
    return list(n.builder.lstm(*operands, **attrs))


def _run(n: Node, states: int, **attrs: Any) -> list[Value]:
    """A network over T×B×… or, with the other layout, B×T×…"""
    batch_first = n.flag("layout")
    operands = [n.get(k) for k in range(5 + states + (n.op == "LSTM"))]
    if batch_first:
        for k in (0, *range(5, 5 + states)):
            operands[k] = _swapped(n, operands[k])
    results = n.builder.emit(n.op.lower(), *operands, **attrs, **_shared(n))
    if not batch_first:
        return list(results)
    y, *last = results
    # Time and directions are moved behind the batch.
    return [n.builder.transpose(y, axes=[2, 0, 1, 3]), *(_present(n, v) for v in last)]


def _swapped(n: Node, value: Value | None) -> Value | None:
    return None if value is None else n.builder.transpose(value, axes=[1, 0, 2])


def _present(n: Node, value: Value) -> Value:
    return n.builder.transpose(value, axes=[1, 0, 2])


def _shared(n: Node) -> dict[str, Any]:
    names = [_activation(a) for a in n.texts("activations", [])]
    return {
        "direction": n.text("direction", "forward"),
        "activations": names,
        "alphas": _parameters(names, _WITH_ALPHA, n.reals("activation_alpha", [])),
        "betas": _parameters(names, _WITH_BETA, n.reals("activation_beta", [])),
        "clip": n.real("clip", 0.0),
    }


def _parameters(
    names: Sequence[str], takers: Container[str], given: Sequence[float]
) -> list[float]:
    """A number for each activation; NaN, the default, for those that take none or get none."""
    left = iter(given)
    return [next(left, math.nan) if name in takers else math.nan for name in names]


def _activation(name: str) -> str:
    if name.lower() not in _ACTIVATIONS:
        raise UserError(f"the activation {name}", remedy=f"known: {', '.join(_ACTIVATIONS)}")
    return _ACTIVATIONS[name.lower()]
