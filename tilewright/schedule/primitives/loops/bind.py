"""bind(loop, axis)"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tilewright.ir import BLOCK_AXES, THREAD_AXES, For, Stmt, walk
from tilewright.schedule.cursor import Tree
from tilewright.schedule.edit import Edit
from tilewright.schedule.error import Fault, require
from tilewright.schedule.facts.dependence import iterations_are_independent
from tilewright.schedule.facts.legality import loop_is_serial, no_loop_around_is, no_loop_inside_is
from tilewright.support.errors import nearest

_AXES: Final = (*BLOCK_AXES, *THREAD_AXES)


def bind(tree: Tree, loop: For, axis: str) -> Edit:
    """Give each iteration of a loop to a thread (or a block of threads) of a device.

    for i in range(64): …      -->      for i in thread(64, "threadIdx.x"): …
    """
    check(tree, loop, axis)
    return Edit(tree.replace(loop, replace(loop, kind="thread", axis=axis)))


def check(tree: Tree, loop: For, axis: str) -> None:
    require(
        tree,
        f"cannot bind loop {loop.var.name} to {axis}",
        _axis_exists(axis),
        loop_is_serial(loop),
        no_loop_around_is(tree, loop, "parallel", "vectorized"),
        no_loop_inside_is(loop, "parallel"),
        _axis_is_free(tree, loop, axis),
        iterations_are_independent(tree, loop),
    )


def _axis_exists(axis: str) -> Fault | None:
    return None if axis in _AXES else Fault("there is no such axis", nearest(axis, _AXES))


def _axis_is_free(tree: Tree, loop: For, axis: str) -> Fault | None:
    """No loop around or inside is bound to the axis already."""
    nearby: list[Stmt] = [*tree.ancestors(loop), *walk(loop)]
    for other in nearby:
        if isinstance(other, For) and other.axis == axis:
            return Fault(f"loop {other.var.name} is bound to {axis}", "use another axis", other)
    return None
