"""Normalisations, each as several computes that fuse into one kernel."""

from __future__ import annotations

from tilewright.ir import Expr
from tilewright.tensor import te
from tilewright.tensor.ops.elementwise import elementwise
from tilewright.tensor.ops.extents import axis_of
from tilewright.tensor.ops.reduce import max, mean, sum


def softmax(x: te.Tensor, axis: int = -1, name: str = "softmax") -> te.Tensor:
    """exp(x) over its sum along `axis`; shifted by the greatest element, lest it overflow."""
    axis = axis_of(name, axis, x.ndim)
    greatest = max(x, axis, keepdims=True, name=f"{name}_max")
    powers = elementwise(_shifted_exp, x, greatest, name=f"{name}_exp")
    total = sum(powers, axis, keepdims=True, name=f"{name}_sum")
    return elementwise(_quotient, powers, total, name=name)


def layer_norm(
    x: te.Tensor,
    gamma: te.Tensor | None = None,
    beta: te.Tensor | None = None,
    axis: int = -1,
    epsilon: float = 1e-5,
    name: str = "layer_norm",
) -> te.Tensor:
    """`x` brought to mean 0 and variance 1 over the axes from `axis` on, times gamma, plus beta."""
    axes = range(axis_of(name, axis, x.ndim), x.ndim)
    centre = mean(x, axes, keepdims=True, name=f"{name}_mean")
    squares = elementwise(_squared_distance, x, centre, name=f"{name}_squares")
    variance = mean(squares, axes, keepdims=True, name=f"{name}_variance")
    affine = [t for t in (gamma, beta) if t is not None]

    def element(e: Expr, m: Expr, v: Expr, *given: Expr) -> Expr:
        scaled = (e - m) * te.rsqrt(v + epsilon)
        values = iter(given)
        scaled = scaled if gamma is None else scaled * next(values)
        return scaled if beta is None else scaled + next(values)

    return elementwise(element, x, centre, variance, *affine, name=name)


def _shifted_exp(x: Expr, shift: Expr) -> Expr:
    # None is above the greatest: saying so spares exp the thought of overflowing.
    return te.exp(te.minimum(x - shift, 0))


def _quotient(a: Expr, b: Expr) -> Expr:
    # A row shares its sum: one division for all.
    return a * (1 / b)


def _squared_distance(a: Expr, b: Expr) -> Expr:
    return (a - b) * (a - b)
