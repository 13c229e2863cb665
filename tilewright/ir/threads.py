"""Loops over the threads of a GPU, and synchronization of these threads.

A *launch* is an outermost nest of loops bound to `blockIdx`, a *phase* an outermost nest of loops
bound to `threadIdx` inside it.
"""

from __future__ import annotations

from typing import Final

from tilewright.ir.expr import Call, Const
from tilewright.ir.intrinsics import call
from tilewright.ir.stmt import Evaluate, For, Stmt
from tilewright.ir.visit import walk
from tilewright.support.errors import UserError

BLOCK_AXES: Final = ("blockIdx.x", "blockIdx.y", "blockIdx.z")
THREAD_AXES: Final = ("threadIdx.x", "threadIdx.y", "threadIdx.z")
#: The annotation of a loop: the number of iterations whose copies are in shared memory at once.
STAGES: Final = "stages"
#: The annotation of a loop in which threads store the elements they hold, without exchanging any.
KEEPS_PAIRS: Final = "keeps_pairs"


def is_over_blocks(stmt: Stmt) -> bool:
    """Whether `stmt` is a loop over blocks of threads."""
    return isinstance(stmt, For) and stmt.axis in BLOCK_AXES


def is_over_threads(stmt: Stmt) -> bool:
    """Whether `stmt` is a loop over the threads of a block."""
    return isinstance(stmt, For) and stmt.axis in THREAD_AXES


def threads_of(stmt: Stmt) -> tuple[int, int, int]:
    """How many threads a block of a launch has along x, y and z: the most that any phase has."""
    most: dict[str, int] = dict.fromkeys(THREAD_AXES, 1)
    for loop in walk(stmt):
        if isinstance(loop, For) and is_over_threads(loop):
            most[loop.axis] = max(most[loop.axis], _extent(loop))
    x, y, z = most.values()
    return x, y, z


def _extent(loop: For) -> int:
    if not isinstance(loop.extent, Const):
        raise UserError(
            f"loop {loop.var.name} cannot run over {loop.axis}",
            reason=f"its extent {loop.extent} is not a number",
            remedy="split it, and bind the inner loop",
        )
    return int(loop.extent.value)


def barrier() -> Evaluate:
    """The threads of a block wait for each other."""
    return Evaluate(call("barrier"))


def is_barrier(stmt: Stmt) -> bool:
    """Whether the threads of a block wait for each other, or for the other group of warps."""
    return _calls(stmt, "barrier", "groups_await")


def is_arrival(stmt: Stmt) -> bool:
    """Whether a group of warps signals that it has done what the other one waits for."""
    return _calls(stmt, "groups_arrive")


def grid_barrier() -> Evaluate:
    """The threads of all blocks of a launch wait for each other."""
    return Evaluate(call("grid_barrier"))


def is_grid_barrier(stmt: Stmt) -> bool:
    return _calls(stmt, "grid_barrier")


def is_cooperative(stmt: Stmt) -> bool:
    """Whether blocks of a launch wait for each other, so that all must be resident at once."""
    return any(map(is_grid_barrier, walk(stmt)))


def is_for_all_threads(stmt: Stmt) -> bool:
    """Whether all threads of a block execute a statement, although it is in no phase."""
    return _calls(stmt, *_FOR_ALL)


#: Calls that all threads of a block execute together.
_FOR_ALL: Final = (
    "barrier",
    "grid_barrier",
    "async_commit",
    "async_wait",
    "groups_arrive",
    "groups_await",
    "products_fence",
    "products_start",
    "products_commit",
    "products_wait",
    "products_finish",
)


def _calls(stmt: Stmt, *names: str) -> bool:
    return isinstance(stmt, Evaluate) and isinstance(stmt.call, Call) and stmt.call.name in names
