"""Scores of classes and their transforms, for all classifiers of ai.onnx.ml."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.frontends.onnx.node import Node
from tilewright.graph import STRING, Value
from tilewright.support.errors import UserError, nearest


def class_labels(n: Node, best: Value) -> Value:
    """The names of classes, given their numbers."""
    ints = n.integers("classlabels_int64s", None) or n.integers("classlabels_ints", None)
    if ints:
        table = n.constant(_complete(np.array(ints, np.int64), 0))
        return n.builder.gather(table, best, axis=0)
    texts = n.texts("classlabels_strings", None)
    if not texts:
        raise UserError("the classifier has no class labels")
    names = np.array([*texts, None], object)[:-1]
    return n.builder.gather(n.constant(_complete(names, ""), STRING), best, axis=0)


def _complete(labels: Any, other: Any) -> Any:
    """A single label is for the positive class; the negative one gets `other`."""
    return labels if len(labels) > 1 else np.concatenate([np.array([other], labels.dtype), labels])


def post_transformed(n: Node, scores: Value, transform: str) -> Value:
    """Scores after the model's transform."""
    if transform not in _TRANSFORMS:
        raise UserError(f"post_transform is {transform!r}", remedy=nearest(transform, _TRANSFORMS))
    return _TRANSFORMS[transform](n, scores)


def scores_of_two(n: Node, one: Value, transform: str, is_chance: bool) -> Value:
    """The scores of two classes from that of the second, as ONNX Runtime transforms them."""
    b = n.builder
    if transform == "LOGISTIC":
        return b.sigmoid(b.concat(b.neg(one), one, axis=1))
    other = b.sub(n.scalar(1.0, one), one) if is_chance else b.neg(one)
    return b.concat(other, one, axis=1)


def _softmax_zero(n: Node, scores: Value) -> Value:
    """A softmax in which scores of zero stay so."""
    b = n.builder
    is_zero = b.less_equal(b.abs(scores), n.scalar(1e-7, scores))
    greatest = b.max(scores, axes=[-1], keepdims=True)
    powers = b.where(is_zero, n.scalar(0.0, scores), b.exp(b.sub(scores, greatest)))
    total = b.sum(powers, axes=[-1], keepdims=True)
    none = b.equal(total, n.scalar(0.0, scores))
    return b.where(none, n.scalar(0.5, scores), b.div(powers, total))


def _probit(n: Node, scores: Value) -> Value:
    """The inverse of the normal distribution, as ONNX approximates it."""
    b = n.builder
    x: Any = scores * 2.0 - 1.0
    sign = b.where(b.less(x, 0.0), n.scalar(-1.0, scores), n.scalar(1.0, scores))
    rest: Any = (1.0 - x) * (x + 1.0)
    log: Any = b.log(rest)
    v: Any = log * 0.5 + 2.0 / (np.pi * 0.147)
    root = b.sqrt(b.sqrt(v * v - log * (1 / 0.147)) - v)
    found = b.mul(b.mul(sign, root), n.scalar(1.41421356, scores))
    return b.where(b.equal(rest, 0.0), n.scalar(0.0, scores), found)


_TRANSFORMS: dict[str, Callable[[Node, Value], Value]] = {
    "NONE": lambda _, scores: scores,
    "SOFTMAX": lambda n, scores: n.builder.softmax(scores, axis=-1),
    "LOGISTIC": lambda n, scores: n.builder.sigmoid(scores),
    "SOFTMAX_ZERO": _softmax_zero,
    "PROBIT": _probit,
}
