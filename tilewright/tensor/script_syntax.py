"""What is known about a script function before its body is parsed."""

from __future__ import annotations

import ast
from collections import Counter
from typing import Any

from tilewright.ir import Stmt, const


def as_it_is(body: Stmt) -> Stmt:
    """The body of a loop that needs nothing around it."""
    return body


def is_zero(value: Any) -> bool:
    """Whether a start or a step is known to be 0."""
    return value == 0 if isinstance(value, int) else value is const(0)


def assignments(function: ast.FunctionDef) -> Counter[str]:
    """How often each name is assigned; updates in place count twice."""
    found: Counter[str] = Counter()
    for node in ast.walk(function):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found[node.id] += 1
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            found[node.target.id] += 1
        if isinstance(node, ast.Tuple) and isinstance(node.ctx, ast.Store):
            found.update(e.id for e in node.elts if isinstance(e, ast.Name))
    return found
