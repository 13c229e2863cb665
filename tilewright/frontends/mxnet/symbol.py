"""Symbols in JSON: nodes, each after those that it reads."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any, Final

from tilewright.support.errors import UserError
from tilewright.support.narrowing import is_list, is_object

#: The keys of attributes: those of the operator and of the user were separate once.
_ATTRIBUTES: Final = ("param", "attr", "attrs")
_MOST_LEVELS: Final = 16
_START: Final = re.compile(rb'(?:\xef\xbb\xbf)?\s*\{\s*"nodes"\s*:\s*\[')
#: The operator of variables.
VARIABLE: Final = "null"


@dataclass(slots=True)
class SymbolNode:
    """A node: operator, inputs (node and output), attributes as text, inner graphs."""

    op: str
    name: str
    inputs: list[tuple[int, int]]
    attrs: dict[str, str]
    subgraphs: list[Symbol]

    def __str__(self) -> str:
        return f"node {self.name} ({self.op})"


@dataclass(slots=True)
class Symbol:
    """A graph: nodes, and the outputs that are its results."""

    nodes: list[SymbolNode]
    heads: list[tuple[int, int]]
    #: Variables in the order in which an outer node passes them.
    variables: list[int] = field(default_factory=list[int])


def is_symbol(head: bytes) -> bool:
    """Whether a file begins as a symbol does."""
    return _START.match(head) is not None


def parse_symbol(text: str, name: str) -> Symbol:
    """The graph that a text describes."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{name} is no JSON", reason=str(error)) from None
    return _symbol(data, name, 0)


def _symbol(data: Any, name: str, depth: int) -> Symbol:
    if depth > _MOST_LEVELS:
        raise UserError(f"{name} has graphs nested more than {_MOST_LEVELS} deep")
    if not is_object(data):
        raise UserError(f"{name} is no symbol of MXNet")
    listed = data.get("nodes")
    if not is_list(listed) or not listed:
        raise UserError(f"{name} is no symbol of MXNet", reason="it has no nodes")
    nodes = [_node(entry, k, name, depth) for k, entry in enumerate(listed)]
    heads = _pairs(data.get("heads"), len(nodes), f"the heads of {name}")
    if not heads:
        raise UserError(f"{name} has no outputs", reason="its heads are missing")
    return Symbol(nodes, heads, [k for k, n in enumerate(nodes) if n.op == VARIABLE])


def _node(entry: Any, index: int, name: str, depth: int) -> SymbolNode:
    if not is_object(entry):
        raise UserError(f"node {index} of {name} is no node")
    op, label = entry.get("op"), entry.get("name", "")
    if not isinstance(op, str) or not isinstance(label, str):
        raise UserError(f"node {index} of {name} has no operator or no name")
    attrs: dict[str, str] = {}
    for key in _ATTRIBUTES:
        part: Any = entry.get(key) or {}
        if not is_object(part):
            raise UserError(f"node {label} has attributes that are none")
        attrs |= {str(k): str(v) for k, v in part.items()}
    inputs = _pairs(entry.get("inputs", []), index, f"the inputs of node {label}")
    inner: list[Any] = entry.get("subgraphs") or []
    return SymbolNode(op, label, inputs, attrs, [_symbol(s, name, depth + 1) for s in inner])


def _pairs(given: Any, limit: int, what: str) -> list[tuple[int, int]]:
    """Pairs of a node, which must come before `limit`, and one of its outputs."""
    if not is_list(given):
        raise UserError(f"{what} are missing")
    found: list[tuple[int, int]] = []
    for entry in given:
        pair = entry if is_list(entry) else [entry, 0]
        if len(pair) < 2 or not all(type(k) is int for k in pair[:2]):
            raise UserError(f"{what} are {str(pair)[:40]}")
        node, output = pair[:2]
        if not 0 <= node < limit or output < 0:
            raise UserError(f"{what} name output {output} of node {node}", reason="there is none")
        found.append((node, output))
    return found
