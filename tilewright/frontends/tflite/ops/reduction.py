"""Sums, means and extremes along axes; running sums; the greatest and their places."""

from __future__ import annotations

import math
from typing import Any, Final

from tilewright.frontends.tflite.fixed_point import (
    INT32,
    multiplier_of,
    quantized,
    real,
    result_range,
    same_scale,
    scaled,
)
from tilewright.frontends.tflite.node import Node
from tilewright.frontends.tflite.ops.shapes import axis_of
from tilewright.frontends.tflite.products import is_integer
from tilewright.frontends.tflite.table import converts
from tilewright.graph import Value

_REDUCTIONS: Final = {
    "SUM": "sum",
    "REDUCE_PROD": "prod",
    "REDUCE_MAX": "max",
    "REDUCE_MIN": "min",
    "REDUCE_ANY": "any",
    "REDUCE_ALL": "all",
}


def _axes(n: Node) -> list[int]:
    return sorted({axis_of(a, n[0].ndim) for a in n.numbers(1)})


@converts(*_REDUCTIONS)
def reduction(n: Node) -> Value:
    name, keeps = _REDUCTIONS[n.op], n.option("keep_dims")
    how: dict[str, Any] = {"axes": _axes(n), "keepdims": keeps}
    if not how["axes"]:
        return n[0]
    if not n.is_quantized or (name in ("max", "min") and _keeps_scale(n)):
        return n.builder.emit(name, n[0], **how)
    return quantized(n, n.builder.emit(name, real(n, 0), **how))


def _keeps_scale(n: Node) -> bool:
    return same_scale(n.tensor(0).quantization, n.out().quantization)


@converts("MEAN")
def mean(n: Node) -> Value:
    how: dict[str, Any] = {"axes": _axes(n), "keepdims": n.option("keep_dims")}
    if not how["axes"]:
        return n[0]
    if not is_integer(n) or not n.is_quantized:
        return n.builder.mean(n[0], **how)
    return _integer_mean(n, how)


def _integer_mean(n: Node, how: dict[str, Any]) -> Value:
    """Sums times a factor that divides them by how many they are too."""
    b = n.builder
    axes = _axes(n)
    total = b.sum(b.cast(n[0], dtype=INT32), **how)
    count = math.prod(n.extent(0, axis) for axis in axes)
    source, out = n.quantization(0), n.out_quantization()
    total = b.sub(total, n.constant(source.zero * count, INT32))
    factor = multiplier_of(float(source.scale) / float(out.scale)).divided(count)
    return scaled(n, total, factor, **result_range(n)._asdict())


@converts("ARG_MAX", "ARG_MIN")
def arg_max(n: Node) -> Value:
    name = "argmax" if n.op == "ARG_MAX" else "argmin"
    axis = axis_of(n.number(1), n[0].ndim)
    return n.builder.cast(n.builder.emit(name, n[0], axis=axis), dtype=n.out_dtype())


@converts("TOPK_V2")
def top_k(n: Node) -> list[Value]:
    values, places = n.builder.top_k(n[0], k=n.dim(1), axis=-1)
    return [values, n.builder.cast(places, dtype=n.out_dtype(1))]


@converts("CUMSUM")
def cumsum(n: Node) -> Value:
    return n.builder.cumsum(
        n[0],
        axis=axis_of(n.number(1), n[0].ndim),
        exclusive=n.option("exclusive"),
        reverse=n.option("reverse"),
    )
