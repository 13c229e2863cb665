"""Loops over the threads of a GPU, and where these threads meet.

A *launch* is an outermost nest of loops bound to `blockIdx`, a *phase* an outermost nest of loops
bound to `threadIdx` inside it.
"""

from __future__ import annotations

from typing import Final

from tilewright.ir.expr import Call
from tilewright.ir.intrinsics import call
from tilewright.ir.stmt import Evaluate, For, Stmt

BLOCK_AXES: Final = ("blockIdx.x", "blockIdx.y", "blockIdx.z")
THREAD_AXES: Final = ("threadIdx.x", "threadIdx.y", "threadIdx.z")


def is_over_blocks(stmt: Stmt) -> bool:
    """Whether `stmt` is a loop over blocks of threads."""
    return isinstance(stmt, For) and stmt.axis in BLOCK_AXES


def is_over_threads(stmt: Stmt) -> bool:
    """Whether `stmt` is a loop over the threads of a block."""
    return isinstance(stmt, For) and stmt.axis in THREAD_AXES


def barrier() -> Evaluate:
    """The threads of a block wait for each other."""
    return Evaluate(call("barrier"))


def is_barrier(stmt: Stmt) -> bool:
    return (
        isinstance(stmt, Evaluate) and isinstance(stmt.call, Call) and stmt.call.name == "barrier"
    )
