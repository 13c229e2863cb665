"""Tree ensembles: the kernel against the reference, and both against a walk by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.graph.harness import check
from tilewright.graph import Builder
from tilewright.graph.ops.tables.trees import AGGREGATES, MODES
from tilewright.support.errors import UserError


def linked(child: Any, tree: int, inner: int) -> Any:
    return np.where(child < inner, child + tree * inner, -1 - (child - inner) - tree * (inner + 1))


def random_trees(count: int, depth: int, features: int, targets: int, dtype: str) -> list[Any]:
    """Complete trees with random nodes of all modes, and leaves of one to three votes."""
    rng = np.random.default_rng(7)
    inner = 2**depth - 1
    children = [np.arange(inner) * 2 + 1 + side for side in (0, 1)]
    tables = [[linked(c, t, inner) for c in children] for t in range(count)]
    nodes, leaves = count * inner, count * (inner + 1)
    votes = rng.integers(1, 4, leaves)
    modes = rng.integers(0, len(MODES), nodes).astype(np.uint8)
    members = np.where(modes == 6, 3, 0)
    return [
        rng.integers(0, features, nodes),
        rng.integers(-2, 3, nodes).astype(dtype),
        modes,
        np.concatenate([t[0] for t in tables]),
        np.concatenate([t[1] for t in tables]),
        rng.integers(0, 2, nodes).astype(np.uint8),
        np.arange(count) * inner,
        np.concatenate([[0], np.cumsum(votes)]),
        rng.integers(0, targets, votes.sum()),
        rng.standard_normal(votes.sum()).astype(np.float32),
        np.concatenate([[0], np.cumsum(members)]),
        rng.integers(-2, 3, members.sum()).astype(dtype),
    ]


@pytest.mark.parametrize("aggregate", sorted(AGGREGATES))
def test_kernel_and_reference_agree(aggregate: str) -> None:
    rng = np.random.default_rng(2)
    x = rng.integers(-2, 3, (13, 4)).astype("float32")
    x[3, 1] = np.nan
    tables = random_trees(5, 3, 4, 3, "float32")
    check("tree_ensemble", [x, *tables], targets=3, aggregate=aggregate, symbolic=False)


def test_a_stump() -> None:
    """x0 <= 0.5 gives 10, else 20; a second tree is a leaf that gives 1."""
    tables = [
        *([0], np.array([0.5]), np.array([0], np.uint8), [-1], [-2], np.array([1], np.uint8)),
        *([0, -3], [0, 1, 2, 3], [0, 0, 0], np.array([10.0, 20.0, 1.0], np.float32), [0, 0]),
        np.empty(0),
    ]
    x = np.array([[0.5], [0.6], [np.nan]])
    want = np.array([[11.0], [21.0], [11.0]], np.float32)
    check("tree_ensemble", [x, *tables], targets=1, symbolic=False, expected=want)


def test_what_is_refused() -> None:
    b = Builder("main")
    i, f = b.input("i", "i64", (3,)), b.input("f", "f32", (3,))
    x = b.input("x", "f32", (2, 2))
    tables = [i, f, i, i, i, i, i, i, i, f, i, f]
    with pytest.raises(UserError, match="no aggregate 'mean'"):
        b.tree_ensemble(x, *tables, targets=1, aggregate="mean")
    with pytest.raises(UserError, match="rows of features"):
        b.tree_ensemble(f, *tables, targets=1)
