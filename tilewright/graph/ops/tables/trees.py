"""Ensembles of decision trees, all in one table of nodes.

A node compares one feature of a row with a threshold and leads to one of two others. A negative
number is a leaf: `-1 - leaf`. A leaf has votes `leaf_start[leaf] … leaf_start[leaf + 1]`, each a
weight for one target. Trees must not have cycles, which the author of the tables must ensure.
"""

# pyright: reportMissingParameterType=false

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Final

import numpy as np

from tilewright.graph.ir import Array, Value
from tilewright.graph.ir.op import op
from tilewright.graph.ir.types import TensorType, Type
from tilewright.graph.ops.elementwise.elementwise import require_kind, require_same_dtype
from tilewright.ir import DType, Function
from tilewright.support.errors import UserError, nearest
from tilewright.tensor import ElementType, alloc, i64, parallel, script

#: The comparisons by their numbers; `member` looks the feature up in a list.
MODES: Final = ("<=", "<", ">=", ">", "==", "!=", "member")
AGGREGATES: Final = {"sum": 0, "average": 1, "min": 2, "max": 3}


@op
def tree_ensemble(
    x: Value,
    feature: Value,
    threshold: Value,
    mode: Value,
    if_true: Value,
    if_false: Value,
    nan_is_true: Value,
    roots: Value,
    leaf_start: Value,
    target: Value,
    weight: Value,
    member_start: Value,
    members: Value,
    *,
    targets: int,
    aggregate: str = "sum",
) -> Type:
    """The votes that each row of `x` gets from all trees, for each target.

    `mode` has the comparison of each node (see `MODES`), `nan_is_true` where it goes without a
    number. A node that looks for members has those from `member_start[node]` up to the next one's.
    """
    require_kind("float", x, threshold, weight, members)
    require_kind("integer", feature, mode, if_true, if_false, roots, leaf_start, target)
    require_same_dtype(x, threshold, members)
    if x.ndim != 2:
        raise UserError(f"{x} must have rows of features")
    if aggregate not in AGGREGATES:
        raise UserError(
            f"there is no aggregate {aggregate!r}", remedy=nearest(aggregate, AGGREGATES)
        )
    return TensorType(weight.dtype, [x.shape[0], targets])


@tree_ensemble.reference
def tree_ensemble_reference(
    x: Array,
    feature: Array,
    threshold: Array,
    mode: Array,
    if_true: Array,
    if_false: Array,
    nan_is_true: Array,
    roots: Array,
    leaf_start: Array,
    target: Array,
    weight: Array,
    member_start: Array,
    members: Array,
    *,
    targets: int,
    aggregate: str,
) -> Array:
    votes: list[list[list[Any]]] = [[[] for _ in range(targets)] for _ in range(len(x))]
    for row, values in enumerate(x):
        for root in roots:
            at = int(root)
            while at >= 0:
                among = members[member_start[at] : member_start[at + 1]]
                value = values[feature[at]]
                goes = _holds(MODES[int(mode[at])], value, threshold[at], among)
                goes = goes or bool(np.isnan(value) and nan_is_true[at])
                at = int(if_true[at] if goes else if_false[at])
            for vote in range(leaf_start[-1 - at], leaf_start[-at]):
                votes[row][target[vote]].append(weight[vote])
    combined = [[_COMBINE[aggregate](v, len(roots)) if v else 0 for v in row] for row in votes]
    return np.array(combined, weight.dtype).reshape(len(x), targets)


def _holds(mode: str, value: Any, threshold: Any, members: Array) -> bool:
    tests = {
        "<=": value <= threshold,
        "<": value < threshold,
        ">=": value >= threshold,
        ">": value > threshold,
        "==": value == threshold,
        "!=": value != threshold,
        "member": bool(np.any(members == value)),
    }
    return bool(tests[mode])


_COMBINE: dict[str, Callable[[list[Any], int], Any]] = {
    "sum": lambda votes, _: np.sum(votes, dtype=np.float64),
    "average": lambda votes, trees: np.sum(votes, dtype=np.float64) / trees,
    "min": lambda votes, _: np.min(votes),
    "max": lambda votes, _: np.max(votes),
}


@tree_ensemble.kernel
def tree_ensemble_kernel(x: Value, *tables: Value, targets: int, aggregate: str) -> Function:
    mode, nan = tables[2], tables[5]
    weight = tables[9]
    types = (x.dtype, weight.dtype, tables[0].dtype, mode.dtype, nan.dtype)
    return _walk(types, targets, AGGREGATES[aggregate])


@cache
def _walk(types: tuple[DType, ...], targets: int, aggregate: int) -> Function:
    made: list[Any] = [ElementType(t) for t in types]
    element, vote_type, index, kinds, flags = made

    @script
    def tree_ensemble(
        x=element["n", "f"],
        feature=index["m"],
        threshold=element["m"],
        mode=kinds["m"],
        if_true=index["m"],
        if_false=index["m"],
        nan_is_true=flags["m"],
        roots=index["t"],
        leaf_start=index["g"],
        target=index["v"],
        weight=vote_type["v"],
        member_start=index["s"],
        members=element["k"],
        out=vote_type["n", targets],
    ):
        seen = alloc(i64["n", targets])
        for row in parallel(x.shape[0]):
            for first in range(targets):
                out[row, first] = 0
                seen[row, first] = 0
            for tree in range(roots.shape[0]):
                at = roots[tree]
                while at >= 0:
                    column = feature[at]
                    assert column < x.shape[1], f"a tree asks for feature {column}"
                    value = x[row, column]
                    limit = threshold[at]
                    kind = mode[at]
                    goes = value <= limit
                    if kind == 1:
                        goes = value < limit
                    elif kind == 2:
                        goes = value >= limit
                    elif kind == 3:
                        goes = value > limit
                    elif kind == 4:
                        goes = value == limit
                    elif kind == 5:
                        goes = value != limit
                    elif kind == 6:
                        goes = value < value
                        for member in range(member_start[at], member_start[at + 1]):
                            goes = goes or members[member] == value
                    is_nan = value != value
                    goes = goes or (is_nan and nan_is_true[at] > 0)
                    at = if_true[at] if goes else if_false[at]
                for vote in range(leaf_start[-1 - at], leaf_start[-at]):
                    place = target[vote]
                    if aggregate < 2 or seen[row, place] == 0:
                        out[row, place] = out[row, place] + weight[vote]
                    elif aggregate == 2:
                        out[row, place] = min(out[row, place], weight[vote])
                    else:
                        out[row, place] = max(out[row, place], weight[vote])
                    seen[row, place] = 1
            if aggregate == 1:
                for last in range(targets):
                    out[row, last] = out[row, last] / roots.shape[0].astype(vote_type)

    return tree_ensemble
