"""merge_dimensions(block, index)"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Final

from tilewright.ir import (
    Alloc,
    Block,
    Buffer,
    Const,
    Expr,
    For,
    Function,
    Iter,
    Load,
    Range,
    Region,
    Stmt,
    Store,
    Var,
    all_exprs,
    const,
    free_vars,
    map_expr,
    map_stmt,
    substitute_stmt,
    walk,
    with_inferred_regions,
)
from tilewright.schedule.cursor import Tree
from tilewright.schedule.edit import Edit
from tilewright.schedule.error import Fault, require

#: Two variables of a block that always occur together.
Pair = tuple[Iter, Iter]
#: The positions of two dimensions of a buffer; those in between have extent 1.
Span = tuple[int, int]
#: Annotation of blocks that gather: they may read with division, at ij // s and ij % s.
GATHERS: Final = "gathers_rows"


def merge_dimensions(tree: Tree, block: Block, index: int) -> Edit:
    """Merge two adjacent dimensions that always occur together into one.

    for i in n: for j in s: for k: for r:          for i_j in n * s: for k: for r:
        C[i, j, k] += A[i, j, r] * B[r, k]   -->       C[i_j, k] += A[i_j, r] * B[r, k]

    `index` is the position of the first of the two among the iterators of `block`. All buffers that
    they index, and all blocks that use these, are merged too; the second dimension, and dimensions
    in between, may have extent 1 and be read at 0. Blocks annotated with `gathers_rows` read other
    buffers at i_j // s and i_j % s. Parameters keep their memory but change shape: this is for
    callers that pass addresses.
    """
    check(tree, block, index)
    merged = _merged(tree, block, index)
    assert isinstance(merged, Function)
    return Edit(merged)


def check(tree: Tree, block: Block, index: int) -> None:
    what = f"cannot merge dimensions {index} and {index + 1} of block {block.name}"
    require(tree, what, _are_two(block, index))
    merged = _merged(tree, block, index)
    require(tree, what, merged if isinstance(merged, Fault) else _numbers_stay(tree, merged))


def _are_two(block: Block, index: int) -> Fault | None:
    if 0 <= index < len(block.iters) - 1:
        return None
    return Fault(f"it has {len(block.iters)} iterators", "name the first of two neighbours", block)


def _numbers_stay(tree: Tree, merged: Function) -> Fault | None:
    """The sizes that callers pass, ordered by first appearance, must not change."""
    if merged.dims == tree.function.dims:
        return None
    return Fault("the numbers that callers pass would be others, or in another order")


def _merged(tree: Tree, block: Block, index: int) -> Function | Fault:
    nests = _nests(tree.function.body)
    if block not in nests:
        return Fault(f"block {block.name} does not stand alone in serial loops", "", block)
    merge = _Merge(tree.function, nests)
    if not merge.add(block, (block.iters[index], block.iters[index + 1])):
        return Fault("something walks through one of the two alone", "", block)
    found = merge.apply()
    return Fault("one of the two is used by itself", "", block) if found is None else found


class _Merge:
    """Collects the pairs of variables, and of dimensions, that must be merged together."""

    def __init__(self, function: Function, nests: dict[Block, list[For]]) -> None:
        self._function, self._nests = function, nests
        self._pairs: dict[Block, Pair] = {}
        self._axes: dict[Buffer, Span] = {}

    def add(self, block: Block, pair: Pair) -> bool:
        """Merge a pair, and all that this requires; False where that is impossible."""
        if block in self._pairs:
            return self._pairs[block] == pair
        if not _loops_fit(block, pair, self._nests[block]):
            return False
        self._pairs[block] = pair
        own = [
            a for a in _accesses(block) if isinstance(a, Store) or GATHERS not in block.annotations
        ]
        return all(self._add_access(a, pair) for a in own)

    def _add_access(self, access: Load | Store, pair: Pair) -> bool:
        used = [k for k, i in enumerate(access.indices) if _speaks_of(i, pair)]
        if not used:
            return True
        span = _span(access, used[0], pair)
        if span is None or not set(used) <= {*span}:
            return False
        return self._add_buffer(access.buffer, span)

    def _add_buffer(self, buffer: Buffer, span: Span) -> bool:
        if buffer in self._axes:
            return self._axes[buffer] == span
        if buffer.strides is not None:
            return False
        self._axes[buffer] = span
        for block in self._nests:
            for access in _accesses(block):
                if access.buffer is not buffer:
                    continue
                pair = _pair_at(block, access, span)
                if pair is None or not self.add(block, pair):
                    return False
        return True

    # ---- rewriting ------------------------------------------------------------------------------

    def apply(self) -> Function | None:
        """The function with all pairs merged; None where a variable has other uses too."""
        self._new = {b: b.with_(shape=self._joined(b.shape, k)) for b, k in self._axes.items()}
        self._vars = {a.var: Var(f"{a.var.name}_{b.var.name}") for a, b in self._pairs.values()}
        self._blocks = {block.name: pair for block, pair in self._pairs.items()}
        loops = {b: self._nests[b] for b in self._pairs}
        self._loops = {_loop_of(b, self._pairs[b][0], loops[b]).var: b.name for b in loops}
        memo: dict[Expr, Expr] = {}
        body = map_stmt(self._function.body, self._on_stmt, lambda e: map_expr(e, self._load, memo))
        gone = {it.var for pair in self._pairs.values() for it in pair}
        if any(e in gone for e in all_exprs(body) if isinstance(e, Var)):
            return None
        params = [
            self._new.get(p, p) if isinstance(p, Buffer) else p for p in self._function.params
        ]
        return replace(self._function, params=tuple(params), body=body)

    def _joined(self, shape: tuple[Expr, ...], span: Span) -> tuple[Expr, ...]:
        first, last = span
        return (*shape[:first], _times(shape[first], shape[last]), *shape[last + 1 :])

    def _load(self, e: Expr) -> Expr | None:
        if isinstance(e, Load) and e.buffer in self._new:
            return Load(self._new[e.buffer], self._indices(e.buffer, e.indices), e.mask)
        return None

    def _indices(self, buffer: Buffer, indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
        first, last = self._axes[buffer]
        var = indices[first]
        assert isinstance(var, Var)
        return (*indices[:first], self._vars[var], *indices[last + 1 :])

    def _on_stmt(self, stmt: Stmt) -> Stmt | None:
        if isinstance(stmt, Store) and stmt.buffer in self._new:
            indices = self._indices(stmt.buffer, stmt.indices)
            return replace(stmt, buffer=self._new[stmt.buffer], indices=indices)
        if isinstance(stmt, Alloc):
            return replace(stmt, buffers=tuple(self._new.get(b, b) for b in stmt.buffers))
        if isinstance(stmt, Block) and stmt.name in self._blocks:
            return self._block(stmt, self._blocks[stmt.name])
        if isinstance(stmt, For) and stmt.var in self._loops:
            inner = stmt.body
            assert isinstance(inner, For)
            var = self._vars[self._blocks[self._loops[stmt.var]][0].var]
            loop = Var(f"{stmt.var.name}_{inner.var.name}", stmt.var.dtype)
            body = _rebound(inner.body, var, loop)
            return replace(stmt, var=loop, extent=_times(stmt.extent, inner.extent), body=body)
        return None

    def _block(self, block: Block, pair: Pair) -> Block:
        """The block with one variable for the pair; its loop binds it later."""
        at = next(k for k, it in enumerate(block.iters) if it.var is pair[0].var)
        var = self._vars[pair[0].var]
        merged = Iter(var, _times(pair[0].extent, pair[1].extent), pair[0].kind)
        joined = replace(
            block,
            iters=(*block.iters[:at], merged, *block.iters[at + 2 :]),
            bindings=(*block.bindings[:at], var, *block.bindings[at + 2 :]),
            reads=tuple(map(self._region, block.reads)),
            writes=tuple(map(self._region, block.writes)),
        )
        return _taken_apart(joined, var, pair) if GATHERS in block.annotations else joined

    def _region(self, region: Region) -> Region:
        if region.buffer not in self._new:
            return region
        first, last = self._axes[region.buffer]
        start = self._indices(region.buffer, tuple(r.start for r in region.ranges))[first]
        ranges = (*region.ranges[:first], Range(start, const(1)), *region.ranges[last + 1 :])
        return Region(self._new[region.buffer], ranges)


# ---- what goes together -------------------------------------------------------------------------


def _nests(body: Stmt) -> dict[Block, list[For]]:
    """The blocks that are alone in a nest of serial loops, and these loops."""
    found: dict[Block, list[For]] = {}
    for top in walk(body):
        loops: list[For] = []
        stmt = top
        while isinstance(stmt, For) and stmt.kind == "serial":
            loops.append(stmt)
            stmt = stmt.body
        if isinstance(stmt, Block) and len(loops) > len(found.get(stmt, [])):
            found[stmt] = loops
    return found


def _loops_fit(block: Block, pair: Pair, loops: list[For]) -> bool:
    """Both are of one kind, adjacent, and bound to perfectly nested loops."""
    names = [it.var for it in block.iters]
    at = next(k for k, v in enumerate(names) if v is pair[0].var)
    if at + 1 == len(names) or names[at + 1] is not pair[1].var:
        return False
    if pair[0].kind != pair[1].kind or pair[0].kind == "ordered":
        return False
    outer, inner = block.bindings[at : at + 2]
    for first, second in pairwise(loops):
        if first.var is outer and second.var is inner:
            uses = [b for b in block.bindings if free_vars(b) & {outer, inner}]
            return len(uses) == 2
    return False


def _loop_of(block: Block, it: Iter, loops: list[For]) -> For:
    at = next(k for k, other in enumerate(block.iters) if other.var is it.var)
    return next(loop for loop in loops if loop.var is block.bindings[at])


def _accesses(block: Block) -> list[Load | Store]:
    loads = [e for e in all_exprs(block) if isinstance(e, Load)]
    return [*loads, *(s for s in walk(block) if isinstance(s, Store))]


def _speaks_of(index: Expr, pair: Pair) -> bool:
    return bool(free_vars(index) & {it.var for it in pair})


def _span(access: Load | Store, first: int, pair: Pair) -> Span | None:
    """The dimensions, starting at `first`, that the two variables cover completely."""
    last = first + 1
    while last < len(access.indices) - 1 and _is_between(access, last, pair):
        last += 1
    indices, shape = access.indices, access.buffer.shape
    if last >= len(indices) or indices[first] is not pair[0].var:
        return None
    if shape[first] is not pair[0].extent or shape[last] is not pair[1].extent:
        return None
    is_second = indices[last] is pair[1].var or _is_at_one(access, last)
    return (first, last) if is_second else None


def _is_between(access: Load | Store, axis: int, pair: Pair) -> bool:
    """Whether a dimension of extent 1 precedes that of the second variable."""
    return _is_at_one(access, axis) and pair[1].var in access.indices[axis + 1 :]


def _is_at_one(access: Load | Store, axis: int) -> bool:
    """Whether an access reads the only element of a dimension."""
    return access.buffer.shape[axis] is const(1) and access.indices[axis] is const(0)


def _pair_at(block: Block, access: Load | Store, span: Span) -> Pair | None:
    own = {it.var: it for it in block.iters}
    first, second = (access.indices[k] for k in span)
    if not isinstance(first, Var) or first not in own:
        return None
    if not all(_is_at_one(access, k) for k in range(span[0] + 1, span[1])):
        return None
    if _is_at_one(access, span[1]):
        following = dict(pairwise(block.iters))
        return (own[first], following[own[first]]) if own[first] in following else None
    if not isinstance(second, Var) or second not in own:
        return None
    return own[first], own[second]


def _taken_apart(block: Block, var: Var, pair: Pair) -> Block:
    """The block with the two variables computed from the merged one."""
    length = pair[1].extent
    places: dict[Var, Expr] = {pair[0].var: var // length, pair[1].var: var % length}
    return with_inferred_regions(replace(block, body=substitute_stmt(block.body, places)))


def _times(a: Expr, b: Expr) -> Expr:
    if isinstance(a, Const) and isinstance(b, Const):
        return const(int(a.value) * int(b.value))
    return a * b


def _rebound(body: Stmt, var: Var, loop: Var) -> Stmt:
    """`body`, whose block binds `var` to `loop`."""

    def rule(stmt: Stmt) -> Stmt | None:
        if not isinstance(stmt, Block):
            return None
        return replace(stmt, bindings=tuple(loop if b is var else b for b in stmt.bindings))

    return map_stmt(body, rule)
