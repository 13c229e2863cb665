"""factor_out(block)"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple, TypeGuard

from tilewright.ir import (
    Binary,
    Block,
    Buffer,
    Expr,
    Load,
    Stmt,
    Store,
    free_vars,
    loads_in,
    substitute,
    with_inferred_regions,
)
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
from tilewright.schedule.facts.flow import inputs_keep_their_values
from tilewright.schedule.facts.inverse import Solution, solved
from tilewright.schedule.facts.proportion import exchanged, is_proportional, unrounded
from tilewright.schedule.facts.reduction import Update, block_is_reduction, recognised_update
from tilewright.schedule.writing import Written, change_accesses, stores_of


def factor_out(tree: Tree, block: Block) -> Edit:
    """Multiply a sum by a factor common to all its terms, rather than each term.

    for i: for k: S[i, k] = P[i, k] * R[i]      -->      for i: for k: S[i, k] = P[i, k]
    for i: for k: C[i] += S[i, k] * V[k]                 for i: for k: C[i] += S[i, k] * V[k]
    for i: D[i] = C[i] + 1                               for i: D[i] = C[i] * R[i] + 1

    Terms may be rounded to another float type, which must hold them without the factor as well.
    """
    check(tree, block)
    found = _found(tree, block)
    assert not isinstance(found, Fault)
    changes: dict[Stmt, Stmt] = {block: _without_factor(block, found)}
    changes |= {reader: _multiplied(reader, found) for reader in found.readers}
    return Edit(tree.replace_all(changes))


def check(tree: Tree, block: Block) -> None:
    what = f"cannot factor anything out of block {block.name}"
    require(
        tree,
        what,
        block_is_no_part_of_another(tree, block),
        block_is_spatial(block),
        block_has_no_effects(block),
    )
    found = _found(tree, block)
    if isinstance(found, Fault):
        return require(tree, what, found)
    for buffer, writer in ((found.term.buffer, block), (found.sum, found.summing)):
        require(
            tree,
            what,
            buffer_is_intermediate(tree, buffer),
            block_is_the_only_writer(tree, writer, buffer),
            readers_come_after(tree, writer, buffer),
            buffer_is_used_in_blocks_only(tree, buffer),
        )
    for reader in found.readers:
        require(tree, what, inputs_keep_their_values(tree, block, reader))
    return None


class _Found(NamedTuple):
    """A term that is `rest` times `factor`, the sum of such terms, and the readers of the sum."""

    term: Written
    rest: Expr
    summing: Block
    sum: Buffer
    #: The factor in terms of the sum's iterators, and these in terms of its indices.
    factor: Expr
    solution: Solution
    readers: tuple[Block, ...]


def _found(tree: Tree, block: Block) -> _Found | Fault:
    stores = stores_of(block)
    if isinstance(stores, Fault):
        return stores
    if len(stores) != 1:
        return Fault(f"block {block.name} writes several buffers", "", block)
    (term,) = stores
    readers = [b for b in tree.readers(term.buffer) if b is not block]
    if len(readers) != 1 or (update := _sum(readers[0])) is None:
        return Fault(f"{term.buffer.name} is not the term of one sum", "", block)
    (summing,) = readers
    (load,) = [e for e in loads_in(update.values[0]) if e.buffer is term.buffer] or [None]
    if load is None or not is_proportional(update.values[0], load):
        reason = f"the sum of block {summing.name} is not proportional to {term.buffer.name}"
        return Fault(reason, "", summing)
    return _with_factor(tree, block, term, summing, update, load)


def _sum(block: Block) -> Update | None:
    if block_is_reduction(block) is not None:
        return None
    update = recognised_update(block)
    is_sum = (
        isinstance(update, Update)
        and len(update.stores) == 1
        and isinstance(update.combined[0], Binary)
        and update.combined[0].op == "add"
    )
    return update if is_sum and isinstance(update, Update) else None


def _with_factor(
    tree: Tree, block: Block, term: Written, summing: Block, update: Update, load: Load
) -> _Found | Fault:
    (store,) = update.stores
    spatial = [it for it in summing.iters if it.kind != "reduce"]
    made, solution = solved(term.indices, block.iters), solved(store.indices, spatial)
    product, outside = unrounded(term.value), {it.var for it in spatial}
    if made is not None and solution is not None and _is_product(product):
        values = made.at(load.indices)
        for rest, factor in ((product.a, product.b), (product.b, product.a)):
            seen = substitute(factor, values)
            if free_vars(seen) <= outside:
                readers = tuple(b for b in tree.readers(store.buffer) if b is not summing)
                return _Found(term, rest, summing, store.buffer, seen, solution, readers)
    return Fault(
        f"no factor of {term.buffer.name} is the same for all terms of block {summing.name}",
        "write a term as a product, one side of which does not depend on the sum",
        block,
    )


def _is_product(value: Expr) -> TypeGuard[Binary]:
    return isinstance(value, Binary) and value.op == "mul"


# ---- the edit -----------------------------------------------------------------------------------


def _without_factor(block: Block, found: _Found) -> Stmt:
    value = found.term.value
    left = exchanged(value, {unrounded(value): found.rest})
    body = Store(found.term.buffer, found.term.indices, left)
    return with_inferred_regions(replace(block, body=body))


def _multiplied(reader: Block, found: _Found) -> Stmt:
    """A reader of the sum, which multiplies it by the factor."""
    return change_accesses(
        reader,
        [found.sum],
        lambda load: load * substitute(found.factor, found.solution.at(load.indices)),
    )
