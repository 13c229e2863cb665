"""An index of one version of a function: parents, loops, blocks, and who accesses a buffer.

A `Tree` is built once per version in one traversal. Editing copies the path from the edited
statement to the root and shares everything else, so old trees stay valid for their functions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cached_property, lru_cache

from tilewright.arith import Ranges
from tilewright.ir import (
    Block,
    Buffer,
    For,
    Function,
    If,
    Seq,
    Stmt,
    Store,
    Var,
    child_exprs,
    child_stmts,
    loads_in,
    map_children,
    walk,
)


class Tree:
    """An index of one function."""

    def __init__(self, function: Function) -> None:
        self.function = function
        self.parent: dict[Stmt, Stmt | None] = {function.body: None}
        self.loops: dict[Var, For] = {}
        self.blocks: dict[str, Block] = {}
        pending = [function.body]
        while pending:
            stmt = pending.pop()
            children = child_stmts(stmt)
            self.parent.update(dict.fromkeys(children, stmt))
            pending.extend(reversed(children))
            if isinstance(stmt, For):
                self.loops[stmt.var] = stmt
            elif isinstance(stmt, Block):
                self.blocks[stmt.name] = stmt

    # ---- looking up ------------------------------------------------------------------------------

    def ancestors(self, stmt: Stmt) -> Iterator[Stmt]:
        """The statements around `stmt`, innermost first."""
        above = self.parent[stmt]
        while above is not None:
            yield above
            above = self.parent[above]

    def path(self, stmt: Stmt) -> tuple[Stmt, ...]:
        """From the root of the function down to and including `stmt`."""
        return (*reversed(tuple(self.ancestors(stmt))), stmt)

    def loops_above(self, stmt: Stmt) -> tuple[For, ...]:
        """The loops around `stmt` up to the block it is in (or the function), outermost first."""
        found: list[For] = []
        for above in self.ancestors(stmt):
            if isinstance(above, Block):
                break
            if isinstance(above, For):
                found.append(above)
        return tuple(reversed(found))

    def scope(self, stmt: Stmt) -> Block | None:
        """The block that `stmt` is in; None directly in the function."""
        return next((a for a in self.ancestors(stmt) if isinstance(a, Block)), None)

    def is_above(self, outer: Stmt, inner: Stmt) -> bool:
        """Whether `inner` is `outer` or inside it."""
        return outer is inner or any(a is outer for a in self.ancestors(inner))

    def blocks_in(self, stmt: Stmt) -> tuple[Block, ...]:
        """The blocks at or below `stmt` that are in no other block below it, in program order."""
        found: list[Block] = []
        pending = [stmt]
        while pending:
            node = pending.pop()
            if isinstance(node, Block):
                found.append(node)
            else:
                pending.extend(reversed(child_stmts(node)))
        return tuple(found)

    # ---- data flow -------------------------------------------------------------------------------

    @cached_property
    def accesses(self) -> tuple[dict[Buffer, list[Block]], dict[Buffer, list[Block]]]:
        """The blocks that read and those that write each buffer, in program order."""
        readers: dict[Buffer, list[Block]] = {}
        writers: dict[Buffer, list[Block]] = {}
        for block in self.blocks.values():
            reads, writes = buffers_touched(block)
            for buffer in reads:
                readers.setdefault(buffer, []).append(block)
            for buffer in writes:
                writers.setdefault(buffer, []).append(block)
        return readers, writers

    def readers(self, buffer: Buffer) -> list[Block]:
        """The blocks that read `buffer`, in program order."""
        return self.accesses[0].get(buffer, [])

    def writers(self, buffer: Buffer) -> list[Block]:
        """The blocks that write `buffer`, in program order."""
        return self.accesses[1].get(buffer, [])

    def producers(self, block: Block) -> list[Block]:
        """The blocks that write what `block` reads, in program order."""
        wanted, _ = buffers_touched(block)
        return self._others(block, (w for b in wanted for w in self.writers(b)))

    def consumers(self, block: Block) -> list[Block]:
        """The blocks that read what `block` writes, in program order."""
        _, offered = buffers_touched(block)
        return self._others(block, (r for b in offered for r in self.readers(b)))

    def _others(self, block: Block, found: Iterator[Block]) -> list[Block]:
        names = {b.name for b in found if not self._nested(b, block)}
        return [b for b in self.blocks.values() if b.name in names]

    def _nested(self, a: Block, b: Block) -> bool:
        return self.is_above(a, b) or self.is_above(b, a)

    # ---- facts -----------------------------------------------------------------------------------

    @cached_property
    def _outer_ranges(self) -> Ranges:
        return Ranges.for_function(self.function)

    def ranges_at(self, stmt: Stmt) -> Ranges:
        """What is known about the variables at `stmt`."""
        ranges = self._outer_ranges
        for above, below in zip(path := self.path(stmt), path[1:], strict=False):
            ranges = _entering(ranges, above, below)
        return ranges

    # ---- editing ---------------------------------------------------------------------------------

    def replace(self, old: Stmt, new: Stmt) -> Function:
        """The function with `new` in place of `old`."""
        return self.function.with_body(self.rebuilt(self.function.body, old, new))

    def rebuilt(self, root: Stmt, old: Stmt, new: Stmt) -> Stmt:
        """The statement `root` with `new` in place of `old`."""
        for above in self.ancestors(old):
            if old is root:
                break
            old, new = above, _with_child(above, old, new)
        return new

    def replace_all(self, changes: Mapping[Stmt, Stmt]) -> Function:
        """The function with several statements replaced at once; none may contain another."""
        touched = {above for old in changes for above in self.ancestors(old)}
        return self.function.with_body(_with_changes(self.function.body, changes, touched))

    def removable(self, stmt: Stmt) -> Stmt:
        """The largest statement that becomes empty when `stmt` is removed."""
        for above in self.ancestors(stmt):
            if len(child_stmts(above)) != 1 or isinstance(above, Block):
                break
            stmt = above
        return stmt

    def remove(self, stmt: Stmt) -> Function:
        """The function without `stmt` and without loops that contained nothing else."""
        return self.replace(self.removable(stmt), Seq(()))


@lru_cache(maxsize=256)  # every primitive calls it, mostly for unchanged blocks
def buffers_touched(block: Block) -> tuple[Mapping[Buffer, None], Mapping[Buffer, None]]:
    """The buffers that `block` reads and those it writes, by its regions and its statements.

    An intrinsic may write through an address, which only the regions declare.
    """
    reads = dict.fromkeys(r.buffer for r in block.reads)
    writes = dict.fromkeys(r.buffer for r in block.writes)
    for stmt in walk(block):
        if isinstance(stmt, Store):
            writes.setdefault(stmt.buffer)
        for expr in child_exprs(stmt):
            reads.update((load.buffer, None) for load in loads_in(expr))
    return reads, writes


def with_loops_in(stmt: Stmt, ranges: Ranges) -> Ranges:
    """`ranges`, with those of the loops at and below `stmt` that are in no block."""
    pending = [stmt]
    while pending:
        node = pending.pop()
        if isinstance(node, For):
            ranges = ranges.with_extent(node.var, node.extent)
        if not isinstance(node, Block):
            pending.extend(reversed(child_stmts(node)))
    return ranges


def _with_child(above: Stmt, old: Stmt, new: Stmt) -> Stmt:
    return map_children(above, lambda child: new if child is old else child)


def _with_changes(stmt: Stmt, changes: Mapping[Stmt, Stmt], touched: Collection[Stmt]) -> Stmt:
    """`stmt` with some statements replaced; `touched` are those that contain them."""
    if stmt in changes:
        return changes[stmt]
    if stmt not in touched:
        return stmt
    return map_children(stmt, lambda s: _with_changes(s, changes, touched))


def _entering(ranges: Ranges, above: Stmt, below: Stmt) -> Ranges:
    enter = _ENTER.get(type(above))
    return ranges if enter is None else enter(ranges, above, below)


def _enter_for(ranges: Ranges, loop: For, _below: Stmt) -> Ranges:
    return ranges.with_extent(loop.var, loop.extent)


def _enter_block(ranges: Ranges, block: Block, _below: Stmt) -> Ranges:
    for it in block.iters:
        ranges = ranges.with_extent(it.var, it.extent)
    return ranges


def _enter_if(ranges: Ranges, branch: If, below: Stmt) -> Ranges:
    return ranges.assuming(branch.condition) if below is branch.then else ranges


_ENTER: dict[type[Stmt], Callable[..., Ranges]] = {
    For: _enter_for,
    Block: _enter_block,
    If: _enter_if,
}
