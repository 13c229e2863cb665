"""parallel(loop)"""

from __future__ import annotations

from dataclasses import replace

from tilewright.ir import For
from tilewright.schedule.cursor import Tree
from tilewright.schedule.edit import Edit
from tilewright.schedule.error import require
from tilewright.schedule.facts.dependence import iterations_are_independent
from tilewright.schedule.facts.legality import loop_is_serial, no_loop_around_is, no_loop_inside_is


def parallel(tree: Tree, loop: For) -> Edit:
    """Run the iterations of a loop on several threads.

    for i in range(8): …      -->      for i in parallel(8): …
    """
    check(tree, loop)
    return Edit(tree.replace(loop, replace(loop, kind="parallel")))


def check(tree: Tree, loop: For) -> None:
    require(
        tree,
        f"cannot make loop {loop.var.name} parallel",
        loop_is_serial(loop),
        no_loop_around_is(tree, loop, "parallel", "vectorized", "thread"),
        no_loop_inside_is(loop, "parallel", "thread"),
        iterations_are_independent(tree, loop),
    )
