"""The activations of the gates of recurrent networks, by name."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.graph.ir import Array
from tilewright.graph.ir.attributes import Floats, Strings
from tilewright.ir import Expr
from tilewright.support.errors import UserError, nearest
from tilewright.tensor import te


@dataclass(frozen=True)
class CellActivation:
    """A function of (x, alpha, beta), by NumPy and as a formula, and its default parameters."""

    reference: Callable[[Array, float, float], Any]
    formula: Callable[[Expr, float, float], Expr]
    alpha: float = 1.0
    beta: float = 0.0


ACTIVATIONS: dict[str, CellActivation] = {
    "sigmoid": CellActivation(lambda x, a, b: 1 / (1 + np.exp(-x)), lambda e, a, b: te.sigmoid(e)),
    "tanh": CellActivation(lambda x, a, b: np.tanh(x), lambda e, a, b: te.tanh(e)),
    "relu": CellActivation(lambda x, a, b: np.maximum(x, 0), lambda e, a, b: te.maximum(e, 0)),
    "affine": CellActivation(lambda x, a, b: a * x + b, lambda e, a, b: e * a + b),
    "leaky_relu": CellActivation(
        lambda x, a, b: np.where(x >= 0, x, a * x),
        lambda e, a, b: te.select(e >= 0, e, e * a),
        0.01,
    ),
    "thresholded_relu": CellActivation(
        lambda x, a, b: np.where(x >= a, x, 0),
        lambda e, a, b: te.select(e >= a, e, te.const(0, e.dtype)),
    ),
    "scaled_tanh": CellActivation(
        lambda x, a, b: a * np.tanh(b * x), lambda e, a, b: te.tanh(e * b) * a, 1.0, 1.0
    ),
    "hard_sigmoid": CellActivation(
        lambda x, a, b: np.clip(a * x + b, 0, 1),
        lambda e, a, b: te.clip(e * a + b, 0, 1),
        0.2,
        0.5,
    ),
    "elu": CellActivation(
        lambda x, a, b: np.where(x >= 0, x, a * np.expm1(x)),
        lambda e, a, b: te.select(e >= 0, e, te.expm1(e) * a),
    ),
    "softsign": CellActivation(
        lambda x, a, b: x / (1 + np.abs(x)), lambda e, a, b: e / (te.abs(e) + 1.0)
    ),
    "softplus": CellActivation(
        lambda x, a, b: np.logaddexp(0, x),
        lambda e, a, b: te.maximum(e, 0) + te.log1p(te.exp(-te.abs(e))),
    ),
}


@dataclass(frozen=True)
class Chosen:
    """One activation with its parameters."""

    name: str
    alpha: float
    beta: float

    def value(self, x: Array) -> Array:
        return ACTIVATIONS[self.name].reference(x, self.alpha, self.beta)

    def formula(self, e: Expr) -> Expr:
        return ACTIVATIONS[self.name].formula(e, self.alpha, self.beta)


Choice = tuple[tuple[Chosen, ...], ...]


def choose(
    names: Strings, alphas: Floats, betas: Floats, default: Sequence[str], directions: int
) -> Choice:
    """The activations of each direction."""
    wanted = list(names) or list(default) * directions
    if len(wanted) == len(default):
        wanted = wanted * directions
    if len(wanted) != len(default) * directions:
        raise UserError(
            f"there are {len(names)} activations, not {len(default)} for each direction"
        )
    chosen = [_one(n, alphas, betas, k) for k, n in enumerate(wanted)]
    size = len(default)
    return tuple(tuple(chosen[d * size : (d + 1) * size]) for d in range(directions))


def _one(name: str, alphas: Floats, betas: Floats, k: int) -> Chosen:
    if name not in ACTIVATIONS:
        raise UserError(f"unknown activation {name}", remedy=nearest(name, ACTIVATIONS))
    row = ACTIVATIONS[name]
    alpha = alphas[k] if k < len(alphas) and not math.isnan(alphas[k]) else row.alpha
    beta = betas[k] if k < len(betas) and not math.isnan(betas[k]) else row.beta
    return Chosen(name, alpha, beta)
