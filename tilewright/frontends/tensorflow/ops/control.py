"""Functions, branches and loops."""

from __future__ import annotations

from typing import Any

from tilewright.frontends.common.converting import as_list
from tilewright.frontends.tensorflow.lists import TensorList
from tilewright.frontends.tensorflow.loops import (
    exit_of,
    merge_of,
    run_loop,
    scalar,
    unchanged_params,
)
from tilewright.frontends.tensorflow.node import Node
from tilewright.frontends.tensorflow.table import converts
from tilewright.graph import Value
from tilewright.support.errors import UserError


@converts("PartitionedCall", "StatefulPartitionedCall", "RemoteCall")
def call(n: Node) -> list[Any]:
    return n.call(n.function("f"), n.given)


@converts("While", "StatelessWhile")
def loop(n: Node) -> list[Any]:
    condition, body = n.function("cond"), n.function("body")
    unchanged = unchanged_params(n.importer.model.functions.get(body.name))

    def asked(state: list[Any]) -> Value:
        (found,) = n.call(condition, state)
        return truth(n, found)

    return run_loop(n, n.given, unchanged, asked, lambda state: n.call(body, state))


def truth(n: Node, value: Any) -> Value:
    """Numbers that are not zero are true."""
    if not isinstance(value, Value):
        raise UserError("a condition is no tensor")
    if value.dtype.name == "bool":
        return value
    return n.builder.not_equal(value, n.scalar(0, value))


@converts("If", "StatelessIf")
def branch(n: Node) -> list[Any]:
    then, otherwise = n.function("then_branch"), n.function("else_branch")
    return _chosen(n, n[0], then, otherwise)


def _chosen(n: Node, asked: Value, then: Any, otherwise: Any) -> list[Any]:
    args = n.given[1:]
    known = n.structure.array(asked)
    if known is not None:
        return n.call(then if known.all() else otherwise, args)
    lists: list[list[Any]] = []

    def run(function: Any) -> list[Value]:
        results = n.call(function, args)
        lists.append(results)
        return [r.tensor(n) if isinstance(r, TensorList) else r for r in results]

    found = n.builder.branch(scalar(n, truth(n, asked)), lambda: run(then), lambda: run(otherwise))
    values = as_list(found)
    return [
        TensorList(like.dtype, value.shape[0], like.shape, value)
        if isinstance(like, TensorList)
        else value
        for like, value in zip(lists[-1], values, strict=True)
    ]


@converts("Case", "StatelessCase")
def case(n: Node) -> list[Any]:
    branches = n.functions("branches")
    known = n.find_array(0)
    if known is not None:
        index = int(known)
        return n.call(branches[index if 0 <= index < len(branches) else -1], n.given[1:])

    def from_branch(k: int) -> list[Value]:
        if k == len(branches) - 1:
            return n.call(branches[k], n.given[1:])
        asked = n.builder.equal(n[0], n.scalar(k, n[0]))
        found = n.builder.branch(
            scalar(n, asked), lambda: n.call(branches[k], n.given[1:]), lambda: from_branch(k + 1)
        )
        return as_list(found)

    return from_branch(0)


@converts("Switch", "RefSwitch")
def switch(n: Node) -> list[Any]:
    """Both sides get the value; the join of the sides decides which one counts."""
    return [n.given[0], n.given[0]]


@converts("_SwitchN")
def switch_of_many(n: Node) -> list[Any]:
    return [n.given[0]] * n.integer("num_outs")


@converts("Merge", "RefMerge")
def merge(n: Node) -> list[Any]:
    return merge_of(n)


@converts("Exit", "RefExit")
def leave(n: Node) -> Any:
    return exit_of(n)
