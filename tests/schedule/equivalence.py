"""Whether a schedule still computes what its program does.

Loops that were made parallel or vectorized are run backwards too, which shows whether their
iterations really are independent.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from tilewright.ir import (
    Const,
    For,
    Function,
    Stmt,
    child_stmts,
    interpret,
    map_function,
    substitute_stmt,
    verify,
)
from tilewright.schedule import Schedule, Trace


def iterations(function: Function) -> int:
    """How often statements run, where symbolic extents count as 8."""

    def count(stmt: Stmt) -> int:
        inside = sum(count(s) for s in child_stmts(stmt)) or 1
        if not isinstance(stmt, For):
            return inside
        return inside * (int(stmt.extent.value) if isinstance(stmt.extent, Const) else 8)

    return count(function.body)


def _backwards(function: Function) -> Function:
    """Loops without an order run from the end."""

    def on_stmt(stmt: Stmt) -> Stmt | None:
        if not isinstance(stmt, For) or stmt.kind not in ("parallel", "vectorized"):
            return None
        last = stmt.extent - 1 - stmt.var
        return replace(stmt, kind="serial", body=substitute_stmt(stmt.body, {stmt.var: last}))

    return map_function(function, on_stmt)


def _run(function: Function, program: Any) -> None:
    outputs = [np.full(e.shape, 77, e.dtype) for e in program.expected]
    interpret(function, *program.inputs, *outputs)
    for output, expected in zip(outputs, program.expected, strict=True):
        np.testing.assert_array_equal(output, expected)


def check(s: Schedule, program: Any) -> None:
    """The schedule is well formed, keeps the result in every order, and can be replayed."""
    verify(s.function)
    _run(s.function, program)
    _run(_backwards(s.function), program)
    again = Trace.from_json(s.trace.to_json()).replay(program.function)
    assert str(again) == str(s) and again.trace == s.trace
