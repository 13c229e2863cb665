"""Linear models and support vector machines of ai.onnx.ml."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from tilewright.frontends.onnx.node import Node
from tilewright.frontends.onnx.ops.ml.scores import class_labels, post_transformed, scores_of_two
from tilewright.frontends.onnx.table import converts
from tilewright.graph import Array, Value
from tilewright.support.errors import UserError

_ML: Final = "ai.onnx.ml"


def _floats(n: Node, name: str) -> Array:
    return np.array(n.reals(name, []), np.float32)


def _rows(n: Node) -> Value:
    x = n[0] if n[0].ndim != 1 else n.builder.unsqueeze(n[0], axes=[0])
    if x.ndim != 2:
        raise UserError(f"{x} must have rows of features")
    return n.builder.cast(x, dtype="float32")


def _linear(n: Node, x: Value, outputs: int) -> Value:
    coefficients = _floats(n, "coefficients")
    if outputs < 1 or not coefficients.size or coefficients.size % outputs:
        raise UserError(f"{coefficients.size} coefficients are given for {outputs} outputs")
    weights = coefficients.reshape(outputs, -1)
    product = n.builder.matmul(x, n.constant(weights.T.copy()))
    offsets = _floats(n, "intercepts")
    return n.builder.add(product, n.constant(offsets)) if offsets.size else product


@converts("LinearRegressor", domain=_ML)
def linear_regressor(n: Node) -> Value:
    scores = _linear(n, _rows(n), n.integer("targets", 1))
    return post_transformed(n, scores, n.text("post_transform", "NONE"))


@converts("LinearClassifier", domain=_ML)
def linear_classifier(n: Node) -> list[Value]:
    b = n.builder
    labels = n.integers("classlabels_ints", None) or n.texts("classlabels_strings", [])
    outputs = _floats(n, "intercepts").size or max(len(labels), 1)
    scores = _linear(n, _rows(n), outputs)
    transform = n.text("post_transform", "NONE")
    if outputs == 1:
        chosen = b.cast(b.greater(b.squeeze(scores, axes=[1]), 0.0), dtype="int64")
        return [class_labels(n, chosen), scores_of_two(n, scores, transform, is_chance=True)]
    best = b.argmax(scores, axis=1)
    return [class_labels(n, best), post_transformed(n, scores, transform)]


# ---- support vectors ----------------------------------------------------------------------------


def _table(n: Node, name: str, rows: int) -> Array:
    """The numbers of an attribute, in this many rows."""
    numbers = _floats(n, name)
    if rows < 1 or numbers.size % rows:
        raise UserError(f"{name} holds {numbers.size} numbers, which make no {rows} rows")
    return numbers.reshape(rows, -1)


def _offset(n: Node) -> float:
    numbers = _floats(n, "rho")
    if not numbers.size:
        raise UserError("rho holds no number", reason="it is added to every score")
    return float(numbers[0])


def _kernel(n: Node, x: Value, vectors: Array) -> Value:
    """The kernel function of each row and each vector."""
    b = n.builder
    gamma, offset, degree = (*n.reals("kernel_params", [0.0, 0.0, 0.0]), 0.0, 0.0, 0.0)[:3]
    kind = n.text("kernel_type", "LINEAR")
    if kind == "RBF":
        difference = b.sub(b.unsqueeze(x, axes=[1]), n.constant(vectors))
        return b.exp(b.mul(b.sum_square(difference, axes=[2]), n.constant(-gamma, "float32")))
    product: Any = b.matmul(x, n.constant(vectors.T.copy()))
    if kind == "LINEAR":
        return product
    scaled: Any = product * gamma + offset
    if kind == "POLY":
        return b.pow(scaled, n.constant(degree, "float32"))
    if kind == "SIGMOID":
        return b.tanh(scaled)
    raise UserError(f"kernel_type is {kind!r}", remedy="use LINEAR, POLY, RBF or SIGMOID")


@converts("SVMRegressor", domain=_ML)
def svm_regressor(n: Node) -> Value:
    b, x, count = n.builder, _rows(n), n.integer("n_supports", 0)
    coefficients = _floats(n, "coefficients")
    similar = _kernel(n, x, _table(n, "support_vectors", count)) if count else x
    scores: Any = b.matmul(similar, n.constant(coefficients.reshape(-1, 1)))
    scores = scores + _offset(n)
    if n.flag("one_class"):
        return b.where(b.greater(scores, 0.0), n.scalar(1.0, scores), n.scalar(-1.0, scores))
    return post_transformed(n, scores, n.text("post_transform", "NONE"))


@converts("SVMClassifier", domain=_ML)
def svm_classifier(n: Node) -> list[Value]:
    b, x = n.builder, _rows(n)
    sizes: list[int] = n.integers("vectors_per_class", [])
    transform = n.text("post_transform", "NONE")
    if not sum(sizes):
        labels = n.integers("classlabels_ints", None) or n.texts("classlabels_strings", [])
        similar = _kernel(n, x, _table(n, "coefficients", max(len(labels), 1)))
        scores: Any = b.add(similar, n.scalar(_offset(n), similar))
        return [class_labels(n, b.argmax(scores, axis=1)), post_transformed(n, scores, transform)]
    scores, best = _against_each_other(n, x, sizes)
    if _floats(n, "prob_a").size:
        scores = _probabilities(n, scores, len(sizes))
    elif len(sizes) == 2:
        scores = b.concat(b.neg(scores), scores, axis=1)
    return [class_labels(n, best), post_transformed(n, scores, transform)]


def _against_each_other(n: Node, x: Value, sizes: list[int]) -> tuple[Value, Value]:
    """The score of each pair of classes, and the class that wins most often."""
    b, total, classes = n.builder, sum(sizes), len(sizes)
    similar = _kernel(n, x, _table(n, "support_vectors", total))
    coefficients = _table(n, "coefficients", classes - 1)
    if coefficients.shape[1] != total:
        raise UserError(f"each of {total} vectors needs {classes - 1} coefficients")
    starts = np.concatenate([[0], np.cumsum(sizes)])
    pairs = _pairs(classes)
    weights = np.zeros((total, len(pairs)), np.float32)
    for k, (i, j) in enumerate(pairs):
        own, other = slice(*starts[i : i + 2]), slice(*starts[j : j + 2])
        weights[own, k], weights[other, k] = coefficients[j - 1, own], coefficients[i, other]
    scores = b.add(b.matmul(similar, n.constant(weights)), n.constant(_floats(n, "rho")))
    wins = b.cast(b.greater(scores, n.scalar(0.0, scores)), dtype="float32")
    first, second = np.zeros((2, len(pairs), classes), np.float32)
    for k, (i, j) in enumerate(pairs):
        first[k, i], second[k, j] = 1, 1
    votes = b.add(b.matmul(wins, n.constant(first)), b.matmul(1.0 - wins, n.constant(second)))
    return scores, b.argmax(votes, axis=1)


def _pairs(classes: int) -> list[tuple[int, int]]:
    return [(i, j) for i in range(classes) for j in range(i + 1, classes)]


def _probabilities(n: Node, scores: Value, classes: int) -> Value:
    """Probabilities of classes from those of pairs, by the iteration of libsvm."""
    b = n.builder
    a, c = n.constant(_floats(n, "prob_a")), n.constant(_floats(n, "prob_b"))
    chance = 1.0 - b.sigmoid(b.add(b.mul(scores, a), c))
    chance = b.clip(chance, n.constant(1e-7, "float32"), n.constant(1 - 1e-7, "float32"))
    r: dict[tuple[int, int], Any] = {}
    for k, (i, j) in enumerate(_pairs(classes)):
        r[i, j] = b.slice(chance, starts=[k], ends=[k + 1], axes=[1])
        r[j, i] = 1.0 - r[i, j]
    rows = [
        b.concat(*(_quadratic(n, r, t, u, classes) for u in range(classes)), axis=1)
        for t in range(classes)
    ]
    q = b.concat(*(b.unsqueeze(row, axes=[1]) for row in rows), axis=1)
    even = b.full(n.constant(1.0 / classes, "float32"), shape=[scores.shape[0], classes])

    def improve(_: Value, p: Value) -> Value:
        return _improved(n, q, p, classes)

    return b.loop(max(100, classes), [even], improve)


def _quadratic(n: Node, r: dict[tuple[int, int], Any], t: int, u: int, classes: int) -> Value:
    b = n.builder
    if t != u:
        return b.neg(b.mul(r[u, t], r[t, u]))
    total = None
    for other in range(classes):
        if other != t:
            square = b.mul(r[other, t], r[other, t])
            total = square if total is None else b.add(total, square)
    assert total is not None
    return total


def _improved(n: Node, q: Value, p: Value, classes: int) -> Value:
    """One iteration; rows that have converged stay."""
    b = n.builder
    qp: Any = b.sum(b.mul(q, b.unsqueeze(p, axes=[1])), axes=[2])
    pqp: Any = b.sum(b.mul(p, qp), axes=[1], keepdims=True)
    error = b.max(b.abs(b.sub(qp, pqp)), axes=[1], keepdims=True)
    settled = b.less(error, n.scalar(0.005 / classes, p))
    new: Any = p
    for t in range(classes):
        row: Any = b.squeeze(b.slice(q, starts=[t], ends=[t + 1], axes=[1]), axes=[1])
        own: Any = b.slice(row, starts=[t], ends=[t + 1], axes=[1])
        mine: Any = b.slice(qp, starts=[t], ends=[t + 1], axes=[1])
        step: Any = (pqp - mine) / own
        unit = n.constant(np.eye(classes, dtype=np.float32)[t])
        scale: Any = step + 1.0
        pqp = (pqp + step * (step * own + mine * 2.0)) / (scale * scale)
        new = (new + step * unit) / scale
        qp = (qp + step * row) / scale
    return b.where(settled, p, new)
