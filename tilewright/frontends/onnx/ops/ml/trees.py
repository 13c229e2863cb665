"""Tree ensembles of ai.onnx.ml."""

from __future__ import annotations

from typing import Final

import numpy as np

from tilewright.frontends.onnx.node import Node
from tilewright.frontends.onnx.ops.ml.scores import class_labels, post_transformed, scores_of_two
from tilewright.frontends.onnx.ops.ml.tree_tables import Trees, read_node_list, read_tables
from tilewright.frontends.onnx.table import converts
from tilewright.graph import Array, Value
from tilewright.support.errors import UserError

_ML: Final = "ai.onnx.ml"
_AGGREGATES: Final = ("average", "sum", "min", "max")
_TRANSFORMS: Final = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
_MAX_TARGETS: Final = 1 << 20


@converts("TreeEnsemble", domain=_ML)
def tree_ensemble(n: Node) -> Value:
    aggregate = _AGGREGATES[_index(n, "aggregate_function", 1, len(_AGGREGATES))]
    scores = _scores(n, read_tables(n), n.integer("n_targets"), aggregate)
    transform = _TRANSFORMS[_index(n, "post_transform", 0, len(_TRANSFORMS))]
    return post_transformed(n, scores, transform)


def _index(n: Node, name: str, default: int, count: int) -> int:
    found = n.integer(name, default)
    if not 0 <= found < count:
        raise UserError(f"{name} is {found}", reason=f"it must be below {count}")
    return found


def _scores(n: Node, trees: Trees, targets: int, aggregate: str) -> Value:
    """The votes for each row, in the precision of the trees."""
    if not 0 < targets <= _MAX_TARGETS:
        raise UserError(f"trees with {targets} targets")
    if trees.target.size and not 0 <= trees.target.min() <= trees.target.max() < targets:
        raise UserError(f"a leaf votes for a target that is not among {targets}")
    x = n[0]
    if x.dtype.numpy != trees.threshold.dtype:
        x = n.builder.cast(x, dtype=trees.threshold.dtype)
    tables = [n.constant(table) for table in trees]
    return n.builder.tree_ensemble(x, *tables, targets=targets, aggregate=aggregate)


def _base(n: Node) -> Array:
    if n.has("base_values_as_tensor"):
        return n.tensor("base_values_as_tensor")[0].ravel()
    return np.array(n.reals("base_values", []), np.float32)


def _with_base(n: Node, scores: Value) -> Value:
    """The scores plus base values, if the model has any."""
    base = _base(n)
    return n.builder.add(scores, n.constant(base, scores.dtype)) if base.size else scores


@converts("TreeEnsembleRegressor", domain=_ML)
def tree_ensemble_regressor(n: Node) -> Value:
    aggregate = n.text("aggregate_function", "SUM").lower()
    scores = _scores(n, read_node_list(n, "target"), n.integer("n_targets"), aggregate)
    scores = n.builder.cast(_with_base(n, scores), dtype="float32")
    return post_transformed(n, scores, n.text("post_transform", "NONE"))


@converts("TreeEnsembleClassifier", domain=_ML)
def tree_ensemble_classifier(n: Node) -> list[Value]:
    trees = read_node_list(n, "class")
    count = len(n.integers("classlabels_int64s", None) or n.texts("classlabels_strings", []))
    if count <= 2 and not trees.target.any():
        return _binary(n, trees)
    scores = n.builder.cast(_with_base(n, _scores(n, trees, count, "sum")), dtype="float32")
    best = n.builder.argmax(scores, axis=1)
    return [class_labels(n, best), post_transformed(n, scores, n.text("post_transform", "NONE"))]


def _binary(n: Node, trees: Trees) -> list[Value]:
    """Only one class has votes; the other gets the rest."""
    b = n.builder
    one = b.cast(_with_one_base(n, _scores(n, trees, 1, "sum")), dtype="float32")
    is_chance = not (trees.weight < 0).any()
    chosen = b.cast(b.greater(b.squeeze(one, axes=[1]), 0.5 if is_chance else 0.0), dtype="int64")
    scores = scores_of_two(n, one, n.text("post_transform", "NONE"), is_chance)
    return [class_labels(n, chosen), scores]


def _with_one_base(n: Node, scores: Value) -> Value:
    """Add the base value of the class with votes; of two values it is the second."""
    base = _base(n)
    return n.builder.add(scores, n.scalar(base[-1], scores)) if base.size else scores
