"""Operators of ai.onnx.ml against ONNX Runtime."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from tests.frontends.onnx.models import applied
from tests.frontends.onnx.peer import compare
from tilewright.frontends.onnx.attributes import Attributes
from tilewright.support.errors import UserError

RNG = np.random.default_rng(5)
X = RNG.standard_normal((9, 4)).astype(np.float32)
WITH_NAN = np.where(np.eye(9, 4) > 0, np.nan, X).astype(np.float32)
TRANSFORMS = ["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"]


def numbers(count: int) -> list[float]:
    return [float(v) for v in RNG.standard_normal(count)]


def attributes(**values: Any) -> dict[str, Any]:
    return values


def check(op: str, x: Any = X, count: int = 1, **attrs: Any) -> None:
    compare(op, [x], count=count, domain="ai.onnx.ml", **attrs)


# ---- linear models and support vectors ----------------------------------------------------------


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_linear_models(transform: str) -> None:
    three: dict[str, Any] = {
        "coefficients": numbers(12),
        "intercepts": numbers(3),
        "post_transform": transform,
    }
    check("LinearRegressor", targets=3, **three)
    check("LinearClassifier", count=2, classlabels_ints=[5, 7, 9], **three)
    one: dict[str, Any] = {
        "coefficients": numbers(4),
        "intercepts": [0.1],
        "post_transform": transform,
    }
    check("LinearClassifier", count=2, classlabels_ints=[5, 7], **one)


KERNELS = ["LINEAR", "POLY", "RBF", "SIGMOID"]


@pytest.mark.parametrize("kernel", KERNELS)
def test_support_vector_regression(kernel: str) -> None:
    shared: dict[str, Any] = {
        "kernel_type": kernel,
        "kernel_params": [0.3, 0.1, 2.0],
        "n_supports": 5,
    }
    vectors: dict[str, Any] = {
        "coefficients": numbers(5),
        "support_vectors": numbers(20),
        "rho": [0.2],
    }
    check("SVMRegressor", **shared, **vectors)
    check("SVMRegressor", **shared, **vectors, one_class=1)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("sizes", [[2, 3], [2, 1, 3]])
@pytest.mark.parametrize("is_chance", [False, True])
def test_support_vector_classification(kernel: str, sizes: list[int], is_chance: bool) -> None:
    total, pairs = sum(sizes), len(sizes) * (len(sizes) - 1) // 2
    attrs: dict[str, Any] = {
        "kernel_type": kernel,
        "kernel_params": [0.3, 0.1, 2.0],
        "classlabels_ints": list(range(1, 1 + len(sizes))),
        "vectors_per_class": sizes,
        "coefficients": numbers(total * (len(sizes) - 1)),
        "support_vectors": numbers(total * 4),
        "rho": numbers(pairs),
    }
    if is_chance:
        attrs |= {"prob_a": [-1.0] * pairs, "prob_b": [0.1] * pairs}
    check("SVMClassifier", count=2, **attrs)


# ---- trees --------------------------------------------------------------------------------------


def trees(count: int, depth: int, targets: int, prefix: str, modes: list[str]) -> dict[str, Any]:
    """Complete trees, two votes at each leaf so that every target gets some."""
    inner, total = 2**depth - 1, 2 ** (depth + 1) - 1
    nodes = [(t, k) for t in range(count) for k in range(total)]
    leaves = [(t, k) for t, k in nodes if k >= inner for _ in range(targets)]
    return {
        "nodes_treeids": [t for t, _ in nodes],
        "nodes_nodeids": [k for _, k in nodes],
        "nodes_featureids": [int(RNG.integers(0, 4)) for _ in nodes],
        "nodes_values": numbers(len(nodes)),
        "nodes_modes": ["LEAF" if k >= inner else str(RNG.choice(modes)) for _, k in nodes],
        "nodes_truenodeids": [0 if k >= inner else 2 * k + 1 for _, k in nodes],
        "nodes_falsenodeids": [0 if k >= inner else 2 * k + 2 for _, k in nodes],
        "nodes_missing_value_tracks_true": [int(RNG.integers(0, 2)) for _ in nodes],
        f"{prefix}_treeids": [t for t, _ in leaves],
        f"{prefix}_nodeids": [k for _, k in leaves],
        f"{prefix}_ids": [n % targets for n in range(len(leaves))],
        f"{prefix}_weights": numbers(len(leaves)),
    }


MODES = ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT"]


@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE", "MIN", "MAX"])
def test_regression_trees(aggregate: str) -> None:
    attrs = trees(6, 3, 3, "target", MODES)
    extra = {
        "n_targets": 3,
        "aggregate_function": aggregate,
        "base_values": [0.1, 0.2, 0.3],
    }
    check("TreeEnsembleRegressor", WITH_NAN, **extra, **attrs)


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_classification_trees(transform: str) -> None:
    attrs = trees(6, 3, 3, "class", MODES[:1])
    labels: dict[str, Any] = {"classlabels_int64s": [4, 5, 6], "post_transform": transform}
    check("TreeEnsembleClassifier", WITH_NAN, count=2, **labels, **attrs)
    for is_chance in (False, True):
        one = trees(6, 3, 1, "class", MODES[:1])
        if is_chance:
            one["class_weights"] = [abs(w) / 6 for w in one["class_weights"]]
        labels = {"classlabels_int64s": [4, 5], "post_transform": transform}
        check("TreeEnsembleClassifier", WITH_NAN, count=2, **labels, **one)


def test_attributes_of_forests_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading an attribute takes as long as the forest is large."""
    reads: list[str] = []
    get = Attributes.get

    def counted(self: Any, name: str, *rest: Any) -> Any:
        reads.append(name)
        return get(self, name, *rest)

    monkeypatch.setattr(Attributes, "get", counted)
    for count in (1, 20):
        reads.clear()
        forest = trees(count, 4, 1, "target", ["BRANCH_LEQ"])
        applied("TreeEnsembleRegressor", X, domain="ai.onnx.ml", n_targets=1, **forest)
        assert max(Counter(reads).values()) <= 3


def test_trees_that_are_none() -> None:
    options: dict[str, Any] = {"domain": "ai.onnx.ml", "version": 3, "n_targets": 1}
    for change, message in [
        ({"nodes_truenodeids": [0, 0, 0]}, "a tree has a cycle"),
        ({"nodes_truenodeids": [9, 0, 0]}, "tree 0 has no node 9"),
        ({"nodes_modes": ["BRANCH_MAYBE", "LEAF", "LEAF"]}, "the mode 'BRANCH_MAYBE'"),
        ({"target_nodeids": [0, 2]}, "names a node that is no leaf"),
        ({"target_ids": [0, 5]}, "votes for a target that is not among 1"),
        ({"target_weights": [0.5]}, "target_weights has 1 entries: it should have 2"),
    ]:
        stump: dict[str, Any] = {
            "nodes_treeids": [0, 0, 0],
            "nodes_nodeids": [0, 1, 2],
            "nodes_featureids": [0, 0, 0],
            "nodes_values": [0.5, 0.0, 0.0],
            "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"],
            "nodes_truenodeids": [1, 0, 0],
            "nodes_falsenodeids": [2, 0, 0],
            "target_treeids": [0, 0],
            "target_nodeids": [1, 2],
            "target_ids": [0, 0],
            "target_weights": [1.0, 2.0],
        }
        with pytest.raises(UserError, match=message):
            applied("TreeEnsembleRegressor", X, **attributes(**options, **(stump | change)))


# ---- features -----------------------------------------------------------------------------------


def test_scaling_and_imputing() -> None:
    check("Scaler", offset=[0.1, 0.2, 0.3, 0.4], scale=[1.0, 2.0, 3.0, 4.0])
    for norm in ("MAX", "L1", "L2"):
        check("Normalizer", norm=norm)
    nan = float("nan")
    check("Imputer", WITH_NAN, imputed_value_floats=[1.0, 2.0, 3.0, 4.0], replaced_value_float=nan)
    whole = np.array([[1, 2], [0, 3]])
    check("Imputer", whole, imputed_value_int64s=[9], replaced_value_int64=0)
    check("Binarizer", threshold=0.3)


def test_categories() -> None:
    texts, whole = np.array([["a", "b"], ["c", "z"]], object), np.array([[3, 9]])
    check("OneHotEncoder", whole, cats_int64s=[1, 3, 5])
    check("OneHotEncoder", texts, cats_strings=["a", "c"])
    pairs: dict[str, Any] = {"cats_strings": ["a", "c"], "cats_int64s": [3, 4]}
    check("CategoryMapper", texts, **pairs)
    check("CategoryMapper", whole, **pairs)
    check("LabelEncoder", texts, keys_strings=["a", "z"], values_int64s=[7, 8], default_int64=1)
    check("LabelEncoder", whole, keys_int64s=[9], values_strings=["nine"], default_string="?")


def test_columns() -> None:
    compare("ArrayFeatureExtractor", [X, np.array([[2, 0]])], domain="ai.onnx.ml")
    parts: dict[str, Any] = {"inputdimensions": [4, 2]}
    compare("FeatureVectorizer", [X, X[:, :2].copy()], domain="ai.onnx.ml", **parts)
