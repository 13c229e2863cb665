"""When an edit preserves the semantics of a function: pure predicates that read as sentences.

Each returns None where it holds, else the `Fault` with the reason, the remedy and the culprit.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from tilewright.ir import Block, Const, For, Stmt, free_vars, walk
from tilewright.schedule.cursor import Tree
from tilewright.schedule.error import Fault


def names(loops: Sequence[For]) -> str:
    """Loops by name, for messages."""
    return ", ".join(loop.var.name for loop in loops)


def loop_is_plain(loop: For) -> Fault | None:
    """It is serial and carries no annotations, so that it can be split, fused or removed."""
    if loop.kind != "serial":
        return Fault(f"the loop is {loop.kind}", f"do this before it is made {loop.kind}", loop)
    if loop.annotations:
        held = ", ".join(sorted(loop.annotations))
        return Fault(f"the loop carries the annotations {held}", "unannotate it first", loop)
    return None


def loops_are_distinct(loops: Sequence[For]) -> Fault | None:
    seen: set[For] = set()
    for loop in loops:
        if loop in seen:
            return Fault(f"loop {loop.var.name} is named twice", "name each loop once", loop)
        seen.add(loop)
    return None


def loops_are_directly_nested(loops: Sequence[For]) -> Fault | None:
    """Each loop's body is the next loop and nothing else."""
    for outer, inner in pairwise(loops):
        if outer.body is not inner:
            return Fault(
                f"loop {inner.var.name} is not directly inside loop {outer.var.name}",
                "name loops from the outermost to the innermost, with nothing between them",
                inner,
            )
    return None


def loops_form_one_chain(tree: Tree, loops: Sequence[For]) -> Fault | None:
    """They are nested, with only loops without siblings between them."""
    chain = chain_of(tree, loops)
    if isinstance(chain, Fault):
        return chain
    missing = [loop for loop in loops if loop not in chain]
    if missing:
        lost = missing[0]
        return Fault(
            f"loop {lost.var.name} is not in one nest with loop {chain[-1].var.name}",
            "name loops around the same block",
            lost,
        )
    return None


def chain_of(tree: Tree, loops: Sequence[For]) -> list[For] | Fault:
    """The perfect nest from the outermost of `loops` to the innermost, or why there is none."""
    wanted = set(loops)
    innermost = max(loops, key=lambda loop: sum(1 for _ in tree.ancestors(loop)))
    chain = [innermost]
    wanted.discard(innermost)
    for above in tree.ancestors(innermost):
        if not wanted:
            break
        if not isinstance(above, For):
            return Fault(
                f"loop {chain[-1].var.name} has siblings or is not directly inside another loop",
                "only loops that are perfectly nested can change places",
                chain[-1],
            )
        chain.append(above)
        wanted.discard(above)
    return chain[::-1]


def extents_do_not_depend_on(loops: Sequence[For], on: Sequence[For]) -> Fault | None:
    variables = {loop.var for loop in on}
    for loop in loops:
        used = free_vars(loop.extent) & variables
        if used:
            name = min(v.name for v in used)
            return Fault(
                f"the extent {loop.extent} of loop {loop.var.name} depends on loop {name}",
                f"keep loop {name} outside of it",
                loop,
            )
    return None


def extents_are_equal(first: For, second: For) -> Fault | None:
    if first.extent is second.extent:
        return None
    reason = f"one runs to {first.extent}, the other to {second.extent}"
    return Fault(reason, "split them alike", second)


def loop_is_serial(loop: For) -> Fault | None:
    if loop.kind == "serial":
        return None
    return Fault(f"the loop is {loop.kind} already", "choose a serial loop", loop)


def extent_is_constant(loop: For) -> Fault | None:
    if isinstance(loop.extent, Const):
        return None
    return Fault(
        f"its extent {loop.extent} is not known yet",
        "split it, and use the inner loop, which has a constant extent",
        loop,
    )


def no_loop_around_is(tree: Tree, loop: For, *kinds: str) -> Fault | None:
    for above in tree.ancestors(loop):
        if isinstance(above, For) and above.kind in kinds:
            reason = f"loop {above.var.name} around it is {above.kind}"
            return Fault(reason, "choose one of the two, or fuse them first", above)
    return None


def no_loop_inside_is(loop: For, *kinds: str) -> Fault | None:
    for below in walk(loop.body):
        if isinstance(below, For) and below.kind in kinds:
            reason = f"loop {below.var.name} inside it is {below.kind}"
            return Fault(reason, "choose one of the two, or fuse them first", below)
    return None


def one_block_stands_alone(loop: For, block: Block) -> Fault | None:
    """Below `loop` there are only nested loops around the block."""
    below: Stmt = loop
    while isinstance(below, For):
        below = below.body
    if below is block:
        return None
    return Fault(
        f"loop {loop.var.name} holds more than the loops around block {block.name}",
        "choose a loop around one block alone",
        below,
    )
