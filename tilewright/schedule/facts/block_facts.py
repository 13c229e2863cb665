"""What blocks are, and which blocks access a buffer: predicates.

Each returns None where it holds, else the `Fault` with the reason, the remedy and the culprit.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.arith import Ranges, conjuncts, detect_bindings, prove
from tilewright.ir import (
    TRUE,
    Alloc,
    Binary,
    Block,
    Buffer,
    Call,
    Const,
    Evaluate,
    Expr,
    For,
    Let,
    Load,
    Select,
    Seq,
    Stmt,
    Store,
    Var,
    all_of,
    child_exprs,
    child_stmts,
    free_vars,
    is_pure,
    loads_in,
    walk,
    walk_expr,
)
from tilewright.schedule.cursor import Tree, buffers_touched
from tilewright.schedule.error import Fault
from tilewright.schedule.facts.place import comes_before, outermost

# ---- one block ----------------------------------------------------------------------------------


def block_is_no_part_of_another(tree: Tree, block: Block) -> Fault | None:
    scope = tree.scope(block)
    if scope is None:
        return None
    return Fault(
        f"block {block.name} stands in block {scope.name}",
        f"do this before {scope.name} is made, or use {scope.name}",
        block,
    )


def block_is_spatial(block: Block) -> Fault | None:
    """Its instances are independent of each other."""
    for it in block.iters:
        if it.kind != "spatial":
            return Fault(
                f"block {block.name} runs over the {it.kind} iterator {it.var.name}",
                "only blocks whose iterators are all spatial can be used here",
                block,
            )
    if block.init is not None:
        return Fault(f"block {block.name} has an init", "decompose its reduction first", block)
    return None


def block_is_repeatable(block: Block) -> Fault | None:
    """Running it again changes nothing: it does not depend on what it wrote before."""
    for it in block.iters:
        if it.kind == "ordered":
            return Fault(f"iterator {it.var.name} of block {block.name} runs in order", "", block)
    reads, writes = buffers_touched(block)
    if block.init is None and not reads.keys().isdisjoint(writes):
        name = next(b.name for b in reads if b in writes)
        return Fault(
            f"block {block.name} updates {name} in place",
            "do this before its reduction is decomposed",
            block,
        )
    return block_has_no_effects(block)


def block_has_no_effects(block: Block) -> Fault | None:
    """Its only effects are stores."""
    for stmt in walk(block):
        calls = (e for top in child_exprs(stmt) for e in walk_expr(top) if isinstance(e, Call))
        if isinstance(stmt, Evaluate) or not all(is_pure(c) for c in calls):
            return Fault(
                f"block {block.name} calls what may have effects of its own",
                "do this before it is tensorized",
                stmt,
            )
    return None


def block_always_reads(block: Block, buffer: Buffer) -> bool:
    """Whether every instance reads the buffer, whatever its selects and conditions choose."""
    pending: list[Stmt | Expr] = [block.body]
    while pending:
        node = pending.pop()
        if isinstance(node, Load) and node.buffer is buffer:
            return True
        pending += _certain_parts(node)
    return False


def _certain_parts(node: Stmt | Expr) -> Sequence[Stmt | Expr]:
    """The parts that always run, or are evaluated, when `node` is."""
    if isinstance(node, Expr):
        lazy = isinstance(node, Select) or (isinstance(node, Binary) and node.op in ("and", "or"))
        return node.operands[:1] if lazy else node.operands
    if isinstance(node, Store | Let):
        return (*child_exprs(node), *child_stmts(node)) if _is_unmasked(node) else ()
    is_run = isinstance(node, Seq) or (isinstance(node, Block) and node.predicate is TRUE)
    if isinstance(node, For):
        is_run = isinstance(node.extent, Const) and node.extent.value > 0
    return child_stmts(node) if is_run else ()


def _is_unmasked(stmt: Store | Let) -> bool:
    return not isinstance(stmt, Store) or stmt.mask is None


def only_its_domain_limits(tree: Tree, block: Block) -> Fault | None:
    """Only the bounds of its iterators' domains keep instances from running."""
    ranges = tree.ranges_at(block)
    for it, value in zip(block.iters, block.bindings, strict=True):
        ranges = ranges.assuming(value < it.extent).assuming(value >= 0)
    for condition in conjuncts(block.predicate):
        if not prove(condition, ranges):
            return Fault(
                f"block {block.name} runs only where {condition}",
                "only the edges of its domain may limit it",
                block,
            )
    for above in tree.ancestors(block):
        if not isinstance(above, For | Seq | Alloc | Block):
            return Fault(f"block {block.name} stands under a condition", "", above)
    return None


def loops_cover_the_domain(tree: Tree, block: Block) -> Fault | None:
    """The loops around it run each instance of its domain exactly once."""
    loops = {loop.var: loop.extent for loop in tree.loops_above(block)}
    domain = [it.extent for it in block.iters]
    ranges = Ranges.for_function(tree.function)
    found = detect_bindings(block.bindings, loops, block.predicate, domain, ranges)
    return None if found.bijective else _is_not_covered(block, found.reason)


def reduction_is_whole(tree: Tree, block: Block) -> Fault | None:
    """Every reduction runs over its whole domain."""
    pairs = [p for p in zip(block.iters, block.bindings, strict=True) if p[0].kind == "reduce"]
    used = frozenset[Var]().union(*(free_vars(value) for _, value in pairs))
    loops = {f.var: f.extent for f in tree.loops_above(block) if f.var in used}
    conditions = [c for c in conjuncts(block.predicate) if not free_vars(c).isdisjoint(loops)]
    known = tree.ranges_at(block)
    domain = [it.extent for it, _ in pairs]
    found = detect_bindings([v for _, v in pairs], loops, all_of(*conditions), domain, known)
    return None if found.bijective else _is_not_covered(block, found.reason)


def _is_not_covered(block: Block, reason: str) -> Fault:
    return Fault(
        f"it is not clear that the loops run all instances of block {block.name}: {reason}",
        "do this before its loops are reshaped",
        block,
    )


# ---- buffers and who touches them ---------------------------------------------------------------


def buffer_is_intermediate(tree: Tree, buffer: Buffer) -> Fault | None:
    if buffer not in tree.function.buffers:
        return None
    return Fault(
        f"{buffer.name} is a parameter of the function",
        "only buffers that the function allocates can be changed; cache_write makes one",
    )


def block_is_the_only_writer(tree: Tree, block: Block, buffer: Buffer) -> Fault | None:
    for other in outermost(tree, tree.writers(buffer)):
        if not tree.is_above(other, block):
            return Fault(
                f"block {other.name} writes {buffer.name} too",
                f"only a buffer that {block.name} alone writes can be used here",
                other,
            )
    return None


def readers_come_after(tree: Tree, block: Block, buffer: Buffer) -> Fault | None:
    """All readers of the buffer come after `block`."""
    for reader in tree.readers(buffer):
        nested = tree.is_above(reader, block) or tree.is_above(block, reader)
        if not nested and not comes_before(tree, block, reader):
            return Fault(
                f"block {reader.name} reads {buffer.name} before block {block.name} writes it",
                "",
                reader,
            )
    return None


def buffer_is_used_in_blocks_only(tree: Tree, buffer: Buffer) -> Fault | None:
    """Only blocks access it, and its address is not taken."""
    for stmt in walk(tree.function.body):
        if isinstance(stmt, Block) or tree.scope(stmt) is not None:
            continue
        loads = (load for top in child_exprs(stmt) for load in loads_in(top))
        stored = isinstance(stmt, Store) and stmt.buffer is buffer
        if stored or any(load.buffer is buffer for load in loads):
            return Fault(f"{buffer.name} is used outside of blocks", "", stmt)
    return no_address_is_taken(tree, buffer)


def no_address_is_taken(tree: Tree, buffer: Buffer) -> Fault | None:
    """Every access is a visible load or store."""
    for block in (*tree.readers(buffer), *tree.writers(buffer)):
        for stmt in walk(block):
            if any(_is_address(e, buffer) for top in child_exprs(stmt) for e in walk_expr(top)):
                return Fault(
                    f"block {block.name} takes the address of {buffer.name}",
                    "do this before it is tensorized",
                    stmt,
                )
    return None


def _is_address(expr: Expr, buffer: Buffer) -> bool:
    if not isinstance(expr, Call) or expr.name != "address_of":
        return False
    return any(load.buffer is buffer for load in loads_in(expr))
