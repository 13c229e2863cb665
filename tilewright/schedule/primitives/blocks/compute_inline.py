"""compute_inline(block)"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.arith import Ranges, simplify
from tilewright.ir import Block, Buffer, Expr, Load, Stmt, loads_in, map_children, substitute
from tilewright.schedule.cursor import Tree
from tilewright.schedule.edit import Edit
from tilewright.schedule.error import Fault, require
from tilewright.schedule.facts.block_facts import (
    block_has_no_effects,
    block_is_no_part_of_another,
    block_is_spatial,
    block_is_the_only_writer,
    buffer_is_intermediate,
    buffer_is_used_in_blocks_only,
    readers_come_after,
)
from tilewright.schedule.facts.flow import (
    inputs_keep_their_values,
)
from tilewright.schedule.facts.inverse import Solution, solved
from tilewright.schedule.writing import Written, change_accesses, stores_of, without_buffer

Formulas = dict[Buffer, tuple[Written, Solution]]


def compute_inline(tree: Tree, block: Block) -> Edit:
    """Compute an elementwise block in its consumers; the block and its buffer are removed.

    for i: T[i] = A[i] + 1      -->      for i: B[i] = (A[i] + 1) * 2
    for i: B[i] = T[i] * 2
    """
    check(tree, block)
    formulas = _formulas(block)
    assert not isinstance(formulas, Fault)
    function = tree.remove(block)
    ranges = Ranges.for_function(function)
    function = function.with_body(_inlined(function.body, formulas, ranges))
    for buffer in formulas:
        function = without_buffer(function, buffer)
    return Edit(function)


def check(tree: Tree, block: Block) -> None:
    what = f"cannot inline block {block.name}"
    require(
        tree,
        what,
        block_is_no_part_of_another(tree, block),
        block_is_spatial(block),
        block_has_no_effects(block),
    )
    formulas = _formulas(block)
    if isinstance(formulas, Fault):
        return require(tree, what, formulas)
    for buffer in formulas:
        require(
            tree,
            what,
            buffer_is_intermediate(tree, buffer),
            block_is_the_only_writer(tree, block, buffer),
            readers_come_after(tree, block, buffer),
            buffer_is_used_in_blocks_only(tree, buffer),
        )
        for reader in tree.readers(buffer):
            require(tree, what, inputs_keep_their_values(tree, block, reader))
    return None


def _formulas(block: Block) -> Formulas | Fault:
    """The value that the block writes to each buffer, and its iterators in terms of the indices."""
    stores = stores_of(block)
    if isinstance(stores, Fault):
        return stores
    found: Formulas = {}
    for written in stores:
        solution = solved(written.indices, block.iters)
        if solution is None:
            return Fault(
                f"the element of {written.buffer.name} that block {block.name} writes does not "
                "determine its iterators",
                f"only writes like {written.buffer.name}[vi, vj] can be inlined",
                block,
            )
        found[written.buffer] = written, solution
    if any(load.buffer in found for w, _ in found.values() for load in loads_in(w.value)):
        return Fault(f"block {block.name} reads what it writes", "", block)
    return found


def _inlined(stmt: Stmt, formulas: Formulas, ranges: Ranges) -> Stmt:
    """Replace every load of an inlined buffer by its formula, block by block."""
    if not isinstance(stmt, Block):
        return map_children(stmt, lambda s: _inlined(s, formulas, ranges))
    for it in stmt.iters:
        ranges = ranges.with_extent(it.var, it.extent)
    return change_accesses(stmt, formulas, _formula_at(formulas, ranges))


def _formula_at(formulas: Formulas, ranges: Ranges) -> Callable[[Load], Expr]:
    def value(load: Load) -> Expr:
        written, solution = formulas[load.buffer]
        return simplify(substitute(written.value, solution.at(load.indices)), ranges)

    return value
