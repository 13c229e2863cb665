"""Norms of rows that a model writes out: one kernel reads a row once or twice, and stores nothing
in between."""

from __future__ import annotations

from typing import NamedTuple

from tilewright.graph.ir import Value
from tilewright.graph.rules.rewriter import Rule
from tilewright.graph.rules.site import Site, number_in
from tilewright.graph.sizes.axes import axes_of


class _Spread(NamedTuple):
    """sqrt(mean(x²) + epsilon) over the axes from `first` on."""

    x: Value
    first: int
    epsilon: float


def _divided(s: Site) -> Value | None:
    """x / sqrt(mean(x²) + ε) = rms_norm(x)"""
    root = s.private(s.arg(1), "sqrt")
    return None if root is None else _norm(s, s.x, root.args[0])


def _multiplied(s: Site) -> Value | None:
    """x * (1 / sqrt(mean(x²) + ε)) = rms_norm(x)"""
    for x, factor in ((s.x, s.arg(1)), (s.arg(1), s.x)):
        inverse = s.private(factor, "reciprocal", "rsqrt")
        variance = None if inverse is None else inverse.args[0]
        if inverse is not None and inverse.op.name == "reciprocal":
            root = s.private(variance, "sqrt")
            variance = None if root is None else root.args[0]
        found = None if variance is None else _norm(s, x, variance)
        if found is not None:
            return found
    return None


def _norm(s: Site, x: Value, variance: Value | None) -> Value | None:
    """The norm that brings `x` to variance 1: a layer norm, if `x` was brought to mean 0."""
    spread = _spread_of(s, variance)
    if spread is None or spread.x is not x or s.result.type != x.type:
        return None
    centred = s.made_by(x, "sub")
    source = None if centred is None else centred.args[0]
    mean = None if centred is None else _mean_from(s, centred.args[1], spread.first)
    if source is not None and mean is source and source.type == x.type:
        return s.emit("layer_norm", source, axis=spread.first, epsilon=spread.epsilon)
    return s.emit("rms_norm", x, axis=spread.first, epsilon=spread.epsilon)


def _spread_of(s: Site, variance: Value | None) -> _Spread | None:
    total = s.private(variance, "add")
    for mean, epsilon in (total.args, total.args[::-1]) if total is not None else ():
        number = number_in(epsilon)
        found = s.private(mean, "mean")
        squares = None if found is None else s.made_by(found.args[0], "mul")
        x = None if squares is None else squares.args[0]
        if number is None or number < 0 or x is None or squares is None or found is None:
            continue
        # Narrower elements would be squared in a wider type than the model does.
        if squares.args[1] is not x or x.dtype.name not in ("float32", "float64"):
            continue
        first = min(axes_of(found.attrs["axes"], x.ndim), default=x.ndim)
        if _mean_from(s, mean, first) is found.args[0]:
            return _Spread(x, first, number)
    return None


def _mean_from(s: Site, value: Value | None, first: int) -> Value | None:
    """The value that this is the mean of, if over all axes from `first` on."""
    mean = s.made_by(value, "mean")
    x = None if mean is None else mean.args[0]
    if mean is None or x is None or not mean.attrs["keepdims"]:
        return None
    is_last = tuple(sorted(axes_of(mean.attrs["axes"], x.ndim))) == tuple(range(first, x.ndim))
    return x if is_last and first < x.ndim else None


RULES: dict[str, tuple[Rule, ...]] = {"div": (_divided,), "mul": (_multiplied,)}
