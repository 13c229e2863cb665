"""Layers that join several inputs."""

from __future__ import annotations

from functools import reduce
from typing import Any, Final

from tilewright.frontends.keras.layer import Layer
from tilewright.frontends.keras.table import converts
from tilewright.graph import Value
from tilewright.support.errors import UserError

_OPERATORS: Final = {
    "Add": "add",
    "Average": "add",
    "Maximum": "maximum",
    "Minimum": "minimum",
    "Multiply": "mul",
    "Subtract": "sub",
}


@converts(*_OPERATORS)
def merge(n: Layer) -> Value:
    if not n.inputs:
        raise UserError("nothing is merged")
    op, values = _OPERATORS[n.kind], _of_one_rank(n, n.all)
    result: Any = reduce(lambda a, b: n.builder.emit(op, a, b), values)
    if n.kind == "Average":
        result = result * (1.0 / len(values))
    return n.masked(result, _all_masks(n))


def _of_one_rank(n: Layer, values: list[Value]) -> list[Value]:
    """Tensors of lower rank get axes after the batch."""
    rank = max(v.ndim for v in values)
    return [
        v if v.ndim == rank else n.builder.unsqueeze(v, axes=list(range(1, rank - v.ndim + 1)))
        for v in values
    ]


def _all_masks(n: Layer) -> Value | None:
    masks = [m for v in n.all if (m := n.mask_of(v)) is not None]
    if len(masks) < len(n.inputs):
        return None
    return reduce(lambda a, b: n.builder.logical_and(a, b), masks)


@converts("Concatenate")
def concatenate(n: Layer) -> Value:
    axis = n.config.integer("axis", -1)
    values = n.all
    result = n.builder.concat(*values, axis=axis) if len(values) > 1 else values[0]
    return n.masked(result, _joined_mask(n, axis % result.ndim))


def _joined_mask(n: Layer, axis: int) -> Value | None:
    masks = [n.mask_of(v) for v in n.all]
    if axis != 1 or all(m is None for m in masks):
        return _all_masks(n)
    b = n.builder
    filled = [
        b.full(n.constant(True, "bool"), shape=v.shape[:2]) if m is None else m
        for v, m in zip(n.all, masks, strict=True)
    ]
    return b.concat(*filled, axis=1)


@converts("Dot")
def dot(n: Layer) -> Value:
    x, y = n.all
    given = n.config.raw("axes")
    axes = [given, given] if isinstance(given, int) else list(given)
    first, second = axes[0] % x.ndim, axes[1] % y.ndim
    if n.config.flag("normalize"):
        x, y = _unit(n, x, first), _unit(n, y, second)
    letters = "abcdefghijklmnopqrstuvwxyz"
    left = letters[: x.ndim]
    right = [letters[x.ndim + k] for k in range(y.ndim)]
    right[0], right[second] = left[0], left[first]
    kept = [c for k, c in enumerate(left) if k not in (0, first)]
    kept += [c for k, c in enumerate(right) if k not in (0, second)]
    equation = f"{left},{''.join(right)}->{left[0]}{''.join(kept)}"
    result = n.builder.einsum(x, y, equation=equation)
    return result if kept else n.builder.unsqueeze(result, axes=[1])


def _unit(n: Layer, x: Value, axis: int) -> Value:
    b = n.builder
    square = b.sum(x * x, axes=[axis], keepdims=True)
    return x * b.rsqrt(b.maximum(square, n.scalar(1e-12, x)))
