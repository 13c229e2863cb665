"""Tree ensembles of all versions as tables of nodes (see `graph/ops/tables/trees.py`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from tilewright.frontends.onnx.node import Node
from tilewright.graph import Array
from tilewright.support.errors import UserError

_MODES: Final = {
    "BRANCH_LEQ": 0,
    "BRANCH_LT": 1,
    "BRANCH_GTE": 2,
    "BRANCH_GT": 3,
    "BRANCH_EQ": 4,
    "BRANCH_NEQ": 5,
}
_MEMBER: Final = 6


class Trees(NamedTuple):
    """The operands of `tree_ensemble`, after the rows."""

    feature: Array
    threshold: Array
    mode: Array
    if_true: Array
    if_false: Array
    nan_is_true: Array
    roots: Array
    leaf_start: Array
    target: Array
    weight: Array
    member_start: Array
    members: Array


# ---- nodes and leaves apart (version 5) ---------------------------------------------------------


def read_tables(n: Node) -> Trees:
    """The tables of a TreeEnsemble."""
    feature = _ints(n, "nodes_featureids")
    count = len(feature)
    mode = _sized(n.tensor("nodes_modes")[0].ravel(), count, "nodes_modes")
    weight = n.tensor("leaf_weights")[0].ravel()
    target = _sized(_ints(n, "leaf_targetids"), len(weight), "leaf_targetids")
    member_start, members = _members(n, mode)
    trees = Trees(
        feature,
        _sized(n.tensor("nodes_splits")[0].ravel(), count, "nodes_splits"),
        mode.astype(np.uint8),
        _children(n, "true", count),
        _children(n, "false", count),
        _nan_is_true(n, count),
        _ints(n, "tree_roots"),
        np.arange(len(weight) + 1),
        target,
        weight,
        member_start,
        members,
    )
    return _checked(trees)


def _children(n: Node, side: str, count: int) -> Array:
    children = _sized(_ints(n, f"nodes_{side}nodeids"), count, f"nodes_{side}nodeids")
    is_leaf = _sized(_ints(n, f"nodes_{side}leafs"), count, f"nodes_{side}leafs")
    if children.size and children.min() < 0:
        raise UserError(f"nodes_{side}nodeids has the entry {children.min()}")
    # For a leaf ~k, which equals -1 - k, encodes leaf k.
    return children ^ -(is_leaf != 0).astype(np.int64)


def _members(n: Node, mode: Array) -> tuple[Array, Array]:
    """The sets of nodes that test membership; NaN separates them in the file."""
    dtype = n.tensor("nodes_splits")[0].dtype
    values: Array = np.empty(0, dtype)
    if n.has("membership_values"):
        values = n.tensor("membership_values")[0].ravel()
    ends = np.flatnonzero(np.isnan(values))
    sets = np.split(values[~np.isnan(values)], ends - np.arange(len(ends)))
    sizes = np.zeros(len(mode), np.int64)
    wanted = np.flatnonzero(mode == _MEMBER)
    if len(sets) < len(wanted):
        raise UserError(f"{len(wanted)} nodes look for members in {len(sets)} sets")
    sizes[wanted] = [len(s) for s in sets[: len(wanted)]]
    members: Any = values[~np.isnan(values)].astype(dtype)
    starts: Any = np.concatenate([[0], np.cumsum(sizes)])
    return starts, members


# ---- one list of nodes (versions 1 and 3) -------------------------------------------------------


def read_node_list(n: Node, votes: str) -> Trees:
    """The tables of a regressor or classifier, whose votes are `target_*` or `class_*`."""
    keys = list(zip(n.integers("nodes_treeids"), n.integers("nodes_nodeids"), strict=True))
    texts = n.texts("nodes_modes")
    if len(texts) != len(keys) or len(set(keys)) != len(keys):
        raise UserError("the nodes of the trees do not have one mode and one number each")
    numbers = _numbered(keys, [t == "LEAF" for t in texts])
    inner = [k for k, t in enumerate(texts) if t != "LEAF"]
    leaf_start, target, weight = _votes(n, votes, numbers)
    threshold, features = _floats(n, "nodes_values"), n.integers("nodes_featureids")
    trees = Trees(
        np.array([features[k] for k in inner], np.int64),
        threshold[inner],
        np.array([_mode(texts[k]) for k in inner], np.uint8),
        _linked(n, "nodes_truenodeids", keys, inner, numbers),
        _linked(n, "nodes_falsenodeids", keys, inner, numbers),
        _nan_is_true(n, len(keys))[inner],
        _roots(n, keys, numbers),
        leaf_start,
        target,
        weight,
        np.zeros(len(inner) + 1, np.int64),
        np.empty(0, threshold.dtype),
    )
    return _checked(trees)


Key = tuple[int, int]


def _numbered(keys: Sequence[Key], is_leaf: Sequence[bool]) -> dict[Key, int]:
    """Inner nodes are numbered from 0 up, leaves from -1 down."""
    numbers: dict[Key, int] = {}
    inner = leaves = 0
    for key, leaf in zip(keys, is_leaf, strict=True):
        numbers[key] = -1 - leaves if leaf else inner
        leaves, inner = leaves + leaf, inner + (not leaf)
    return numbers


def _mode(text: str) -> int:
    if text not in _MODES:
        raise UserError(f"a node of a tree has the mode {text!r}")
    return _MODES[text]


def _linked(
    n: Node, name: str, keys: Sequence[Key], inner: Sequence[int], numbers: dict[Key, int]
) -> Array:
    children = n.integers(name)
    links = [(keys[k][0], children[k]) for k in inner]
    missing = next((link for link in links if link not in numbers), None)
    if missing is not None:
        raise UserError(f"tree {missing[0]} has no node {missing[1]}, which {name} asks for")
    return np.array([numbers[link] for link in links], np.int64)


def _roots(n: Node, keys: Sequence[Key], numbers: dict[Key, int]) -> Array:
    """The node of each tree without a parent; the first where all have one."""
    reached = {
        (tree, child)
        for name in ("nodes_truenodeids", "nodes_falsenodeids")
        for (tree, own), child, mode in zip(
            keys, n.integers(name), n.texts("nodes_modes"), strict=True
        )
        if mode != "LEAF" and child != own
    }
    roots: dict[int, int] = {}
    for key in keys:
        if key not in reached:
            roots.setdefault(key[0], numbers[key])
    for key in keys:
        roots.setdefault(key[0], numbers[key])
    return np.array(list(roots.values()), np.int64)


def _votes(n: Node, prefix: str, numbers: dict[Key, int]) -> tuple[Array, Array, Array]:
    """The votes in the order of the leaves, and the start of each leaf's votes."""
    keys = zip(n.integers(f"{prefix}_treeids"), n.integers(f"{prefix}_nodeids"), strict=True)
    leaves = np.array([-1 - numbers.get(key, 0) for key in keys], np.int64)
    targets = _sized(_ints(n, f"{prefix}_ids"), len(leaves), f"{prefix}_ids")
    weights = _sized(_floats(n, f"{prefix}_weights"), len(leaves), f"{prefix}_weights")
    if leaves.size and leaves.min() < 0:
        raise UserError(f"{prefix}_nodeids names a node that is no leaf")
    order = np.argsort(leaves, kind="stable")
    count = sum(k < 0 for k in numbers.values())
    sizes = np.bincount(leaves, minlength=count) if leaves.size else np.zeros(count, np.int64)
    return np.concatenate([[0], np.cumsum(sizes)]), targets[order], weights[order]


# ---- attributes ---------------------------------------------------------------------------------


def _ints(n: Node, name: str) -> Array:
    return np.array(n.integers(name), np.int64)


def _floats(n: Node, name: str) -> Array:
    """Floats, which are in a tensor if they are doubles."""
    if n.has(f"{name}_as_tensor"):
        return n.tensor(f"{name}_as_tensor")[0].ravel()
    return np.array(n.reals(name), np.float32)


def _nan_is_true(n: Node, count: int) -> Array:
    name = "nodes_missing_value_tracks_true"
    given = n.integers(name, None) or [0] * count
    return _sized(np.array(given), count, name).astype(np.uint8)


def _sized(array: Any, count: int, name: str) -> Any:
    if len(array) != count:
        raise UserError(f"{name} has {len(array)} entries", reason=f"it should have {count}")
    return array


def _checked(trees: Trees) -> Trees:
    """The tables, after a check that all links are valid and there are no cycles."""
    nodes, leaves = len(trees.feature), len(trees.leaf_start) - 1
    for links in (trees.if_true, trees.if_false, trees.roots):
        if links.size and (links.max() >= nodes or links.min() < -leaves):
            raise UserError("a tree leads to a node that it does not have")
    if trees.feature.size and trees.feature.min() < 0:
        raise UserError(f"a tree asks for feature {trees.feature.min()}")
    if trees.mode.size and trees.mode.max() > _MEMBER:
        raise UserError(f"a node of a tree has the mode {trees.mode.max()}")
    _require_no_cycle(trees)
    return trees


def _require_no_cycle(trees: Trees) -> None:
    """Nodes are removed once both of their children are; those of a cycle never are."""
    children = np.stack([trees.if_true, trees.if_false], 1)
    waiting = (children >= 0).sum(1)
    parents: list[list[int]] = [[] for _ in range(len(waiting))]
    for links in (trees.if_true, trees.if_false):
        for node, child in enumerate(links):
            if child >= 0:
                parents[int(child)].append(node)
    done = [int(k) for k in np.flatnonzero(waiting == 0)]
    for node in done:
        for parent in parents[node]:
            waiting[parent] -= 1
            if waiting[parent] == 0:
                done.append(parent)
    if len(done) < len(waiting):
        raise UserError("a tree has a cycle")
