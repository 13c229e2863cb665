"""launch_rest(threads)"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tilewright.arith import simplify
from tilewright.ir import (
    Alloc,
    Assert,
    Block,
    Buffer,
    Const,
    Evaluate,
    Expr,
    For,
    If,
    Let,
    Load,
    Seq,
    Stmt,
    Store,
    Var,
    While,
    child_exprs,
    child_stmts,
    const,
    free_vars,
    is_over_blocks,
    loads_in,
    map_children,
    map_stmt,
    seq,
    substitute_stmt,
    walk,
)
from tilewright.schedule.cursor import Tree
from tilewright.schedule.edit import Edit
from tilewright.schedule.error import Fault, require
from tilewright.schedule.writing import change_accesses

_EFFECTS = (Store, Evaluate, Block, While)


def launch_rest(tree: Tree, threads: int = 64) -> Edit:
    """Launch everything that is in no launch yet: what stays outside accesses no elements.

    Iterations of parallel loops are distributed over threads; everything else is done by one
    thread.

        for i in parallel(n): …      -->      for b in thread((n + 63) // 64, "blockIdx.x"):
        B[0] = 1                                  for t in thread(64, "threadIdx.x"):
                                                      if b * 64 + t < n: …
                                              for b in thread(1, "blockIdx.x"):
                                                  for t in thread(1, "threadIdx.x"): B[0] = 1

    Only local buffers are allocated inside launches; other buffers of an iteration are allocated
    outside, with room for all iterations.
    """
    check(tree, threads)
    return Edit(tree.function.with_body(_Launching(tree, threads).statement(tree.function.body)))


def check(tree: Tree, threads: int = 64) -> None:
    is_number = not isinstance(threads, bool) and threads >= 1
    fault = None if is_number else Fault(f"{threads} is no number of threads", "give one from 1 up")
    require(tree, "cannot launch what is left", fault)


def touches_elements(stmt: Stmt) -> bool:
    """Whether a statement accesses elements of buffers outside launches."""
    if is_over_blocks(stmt):
        return False
    return _touches_itself(stmt) or any(map(touches_elements, child_stmts(stmt)))


def _touches_itself(stmt: Stmt) -> bool:
    return isinstance(stmt, _EFFECTS) or any(loads_in(e) for e in child_exprs(stmt))


def _runs_side_by_side(stmt: Stmt) -> bool:
    return is_over_blocks(stmt) or (isinstance(stmt, For) and stmt.kind == "parallel")


class _Launching:
    """Rewrites the statements outside launches."""

    def __init__(self, tree: Tree, threads: int) -> None:
        self.tree, self.threads = tree, threads

    def statement(self, stmt: Stmt) -> Stmt:
        if not touches_elements(stmt):
            return stmt
        if isinstance(stmt, Seq):
            return self._row(stmt)
        if isinstance(stmt, For) and stmt.kind == "parallel":
            return self._side_by_side(stmt)
        return self._inside(stmt) if self._stays_outside(stmt) else self._by_one_thread(stmt)

    def _row(self, row: Seq) -> Stmt:
        """Adjacent statements that one thread runs become a single launch."""
        done, waiting = list[Stmt](), list[Stmt]()
        for stmt in row.statements:
            if touches_elements(stmt) and not self._stays_outside(stmt):
                waiting.append(stmt)
                continue
            done += [*self._waiting(waiting), self.statement(stmt)]
            waiting = []
        return seq(*done, *self._waiting(waiting))

    def _waiting(self, stmts: list[Stmt]) -> list[Stmt]:
        return [self._by_one_thread(seq(*stmts))] if stmts else []

    def _stays_outside(self, stmt: Stmt) -> bool:
        """Whether a statement contains launches, or parallel loops, and can stay on the host."""
        if _runs_side_by_side(stmt):
            return True
        if _touches_itself(stmt) or isinstance(stmt, Assert):
            return False
        if isinstance(stmt, Alloc) and any(b.scope == "local" for b in stmt.buffers):
            return any(map(is_over_blocks, walk(stmt)))
        return any(map(self._stays_outside, child_stmts(stmt)))

    def _inside(self, stmt: Stmt) -> Stmt:
        return map_children(stmt, self.statement)

    def _side_by_side(self, loop: For) -> Stmt:
        """Run each iteration of a parallel loop by a separate thread."""
        threads = self.threads
        if isinstance(loop.extent, Const):
            threads = min(threads, 1 << max(0, int(loop.extent.value) - 1).bit_length())
        block = Var(f"{loop.var.name}_block", loop.var.dtype)
        thread = Var(f"{loop.var.name}_thread", loop.var.dtype)
        number: Expr = block * threads + thread
        body, buffers = self._without_memory(loop.body, loop)
        body = substitute_stmt(body, {loop.var: number})
        if not isinstance(loop.extent, Const) or int(loop.extent.value) % threads:
            body = If(number < loop.extent, body)
        blocks = simplify((loop.extent + (threads - 1)) // threads)
        inner = For(thread, const(threads), "thread", body, "threadIdx.x")
        return _allocated(
            buffers, For(block, blocks, "thread", inner, "blockIdx.x", span=loop.span)
        )

    def _by_one_thread(self, stmt: Stmt) -> Stmt:
        body, buffers = self._without_memory(map_stmt(stmt, _serial), None)
        inner = For(Var("thread"), const(1), "thread", body, "threadIdx.x")
        return _allocated(buffers, For(Var("block"), const(1), "thread", inner, "blockIdx.x"))

    def _without_memory(self, stmt: Stmt, loop: For | None) -> tuple[Stmt, list[Buffer]]:
        """A statement without the non-local buffers it allocates, and these; with a dimension for
        the iterations of `loop` if one is given."""
        found = [b for s in walk(stmt) if isinstance(s, Alloc) for b in s.buffers]
        found = [b for b in found if b.scope != "local"]
        if not found:
            return stmt, []
        self._require_known(stmt, found)
        stmt = map_stmt(stmt, lambda s: _unallocated(s, found))
        if loop is None:
            return stmt, found
        wide = {b: b.with_(shape=(loop.extent, *b.shape), strides=None) for b in found}
        changed = change_accesses(
            stmt,
            wide,
            lambda load: Load(wide[load.buffer], (loop.var, *load.indices), load.mask),
            lambda s: replace(s, buffer=wide[s.buffer], indices=(loop.var, *s.indices)),
        )
        return changed, list(wide.values())

    def _require_known(self, stmt: Stmt, buffers: Iterable[Buffer]) -> None:
        own = {s.var for s in walk(stmt) if isinstance(s, For | Let)}
        for buffer in buffers:
            sizes = frozenset[Var]().union(*map(free_vars, buffer.shape))
            if not own.isdisjoint(sizes):
                reason = f"the size of {buffer.name} is known only inside of it"
                require(self.tree, "cannot launch what is left", Fault(reason, "", stmt))


def _serial(stmt: Stmt) -> Stmt | None:
    if isinstance(stmt, For) and stmt.kind == "parallel":
        return replace(stmt, kind="serial")
    return None


def _unallocated(stmt: Stmt, buffers: list[Buffer]) -> Stmt | None:
    if not isinstance(stmt, Alloc):
        return None
    kept = tuple(b for b in stmt.buffers if b not in buffers)
    return replace(stmt, buffers=kept) if kept else stmt.body


def _allocated(buffers: list[Buffer], stmt: Stmt) -> Stmt:
    return Alloc(tuple(buffers), stmt) if buffers else stmt
