"""Nodes in an order in which every value is computed before it is used."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

from tilewright.support.errors import UserError


def ordered_nodes(graph: Any) -> list[Any]:
    """The nodes of a graph, sorted unless they are in order already."""
    nodes = list(graph.node)
    makers = _makers(nodes, graph)
    needs = [{makers[n] for n in used_names(node) if n in makers} for node in nodes]
    if all(max(found, default=-1) < k for k, found in enumerate(needs)):
        return nodes
    return [nodes[k] for k in _sorted(nodes, needs)]


def _makers(nodes: list[Any], graph: Any) -> dict[str, int]:
    """The node that computes each value; a name with two nodes is an error."""
    taken = {v.name for v in getattr(graph, "input", ()) if hasattr(v, "name")}
    makers: dict[str, int] = {}
    for k, node in enumerate(nodes):
        for name in node.output:
            if name and (name in makers or name in taken):
                raise UserError(
                    f"two definitions of the value {name}",
                    reason=f"{node_text(node)} computes it again",
                )
            if name:
                makers[name] = k
    return makers


def used_names(node: Any) -> Iterator[str]:
    """The names that a node uses, those that graphs inside it capture included."""
    pending: list[tuple[Any, frozenset[str]]] = [(node, frozenset())]
    while pending:
        current, inner = pending.pop()
        yield from (n for n in current.input if n and n not in inner)
        for attribute in current.attribute:
            for graph in (*([attribute.g] if attribute.HasField("g") else ()), *attribute.graphs):
                own = inner | _defined(graph)
                pending.extend((n, own) for n in graph.node)
                yield from (o.name for o in graph.output if o.name not in own)


def _defined(graph: Any) -> set[str]:
    """The names that a graph defines itself, whatever they mean outside."""
    made = {name for node in graph.node for name in node.output}
    return made | {v.name for v in (*graph.input, *graph.initializer)}


def _sorted(nodes: list[Any], needs: list[set[int]]) -> list[int]:
    users: list[list[int]] = [[] for _ in nodes]
    missing = [len(found) for found in needs]
    for k, found in enumerate(needs):
        for maker in found:
            users[maker].append(k)
    ready = deque(k for k, count in enumerate(missing) if not count)
    order: list[int] = []
    while ready:
        k = ready.popleft()
        order.append(k)
        for user in users[k]:
            missing[user] -= 1
            if not missing[user]:
                ready.append(user)
    if len(order) < len(nodes):
        stuck = [node_text(nodes[k]) for k, count in enumerate(missing) if count]
        raise UserError(
            "the nodes of the model form a cycle", reason=f"among {', '.join(stuck[:5])}"
        )
    return order


def node_text(node: Any) -> str:
    """The name of a node in messages."""
    name = node.name or next((f"of {o}" for o in node.output if o), "")
    return f"node {name} ({node.op_type})"
