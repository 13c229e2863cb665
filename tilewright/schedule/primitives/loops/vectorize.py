"""vectorize(loop)"""

from __future__ import annotations

from dataclasses import replace

from tilewright.ir import For
from tilewright.schedule.cursor import Tree
from tilewright.schedule.edit import Edit
from tilewright.schedule.error import require
from tilewright.schedule.facts.dependence import iterations_are_independent
from tilewright.schedule.facts.legality import (
    extent_is_constant,
    loop_is_serial,
    no_loop_around_is,
    no_loop_inside_is,
)


def vectorize(tree: Tree, loop: For) -> Edit:
    """Turn the iterations of a loop into the lanes of vectors.

    for i in range(8): B[i] = A[i]      -->      for i in vectorized(8): B[i] = A[i]
    """
    check(tree, loop)
    return Edit(tree.replace(loop, replace(loop, kind="vectorized")))


def check(tree: Tree, loop: For) -> None:
    require(
        tree,
        f"cannot vectorize loop {loop.var.name}",
        loop_is_serial(loop),
        extent_is_constant(loop),
        no_loop_around_is(tree, loop, "vectorized"),
        no_loop_inside_is(loop, "vectorized", "parallel", "thread"),
        iterations_are_independent(tree, loop),
    )
