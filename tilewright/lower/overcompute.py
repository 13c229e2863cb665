"""Let tiles compute past the edge of intermediate buffers instead of testing for it.

    T = alloc(f32[100])
    for i in range(7): for j in unrolled(16): block T(v = i * 16 + j): where(v < 100); T[v] = …
    -->
    T = alloc(f32[112])
    for i in range(7): for j in unrolled(16): block T(v = i * 16 + j): T[v] = …

A conjunct of a block's predicate that only says "the element written is in bounds" is dropped if
the buffer is intermediate: the buffer grows, and nothing reads the extra elements. The block's
reads must then be in bounds without the condition, too; those of intermediate buffers, which grow
at the end, only need non-negative indices. Where a loop that is neither unrolled nor vectorized
ends the tiles, its condition stays: the loop will just be shorter (`lower.tighten`). In the steps
of a scan, a condition on an unknown number of rows stays, too: there are few rows, and tiles get
versions for them (`lower.tile_rows`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tilewright.arith import Ranges, conjuncts, prove, simplify, symbolic_bounds
from tilewright.ir import (
    Alloc,
    Binary,
    Block,
    Buffer,
    Expr,
    For,
    Function,
    If,
    Load,
    Select,
    Stmt,
    Store,
    Var,
    all_exprs,
    all_of,
    child_exprs,
    free_vars,
    loads_in,
    map_children,
    maximum,
    replace_buffers,
    substitute,
    walk,
)
from tilewright.lower.tighten import is_shortened, limit_of

Values = dict[Var, Expr]
#: Nesting depth of selects up to which their conditions are remembered.
_CHOICES = 4


def overcompute(function: Function) -> Function:
    """Drop predicates that only guard the edges of intermediate buffers."""
    relaxer = _Relaxer(function)
    body = relaxer.stmt(function.body, Ranges.for_function(function), ())
    grown = {b: b.with_(shape=shape) for b, shape in relaxer.shapes.items()}
    return function.with_body(replace_buffers(body, grown) if grown else body)


class _Relaxer:
    """Drops conditions, and remembers the shapes that buffers then need."""

    def __init__(self, function: Function) -> None:
        allocs = [s for s in walk(function.body) if isinstance(s, Alloc)]
        scalars = [p for p in function.params if isinstance(p, Var)]
        #: Values that callers know; sizes may depend on them.
        self.known = frozenset([*function.dims, *scalars])
        self.steps = _loops_over_steps(function)
        # With explicit strides, a row that grows would overlap the next one.
        held = [b for s in allocs for b in s.buffers if b.is_compact]
        self.local = frozenset(b for b in held if b.strides is None)
        self.shapes: dict[Buffer, tuple[Expr, ...]] = {}

    def stmt(self, stmt: Stmt, ranges: Ranges, loops: tuple[For, ...]) -> Stmt:
        if isinstance(stmt, Block):
            values = {it.var: b for it, b in zip(stmt.iters, stmt.bindings, strict=True)}
            kept = self._relaxed(stmt.predicate, stmt.body, values, ranges, loops)
            return stmt if kept is None else replace(stmt, predicate=all_of(*kept))
        if isinstance(stmt, If) and isinstance(stmt.then, Store) and stmt.otherwise is None:
            # The init of a reduction is under the reduction's own condition.
            same: Values = {loop.var: loop.var for loop in loops}
            kept = self._relaxed(stmt.condition, stmt.then, same, ranges, loops)
            if kept is None:
                return stmt
            return If(all_of(*kept), stmt.then) if kept else stmt.then
        if isinstance(stmt, For):
            ranges, loops = ranges.with_extent(stmt.var, stmt.extent), (*loops, stmt)
        return map_children(stmt, lambda s: self.stmt(s, ranges, loops))

    def _relaxed(
        self, condition: Expr, body: Stmt, values: Values, ranges: Ranges, loops: tuple[For, ...]
    ) -> list[Expr] | None:
        """The necessary parts of a condition on `body`; None if all of them are."""
        parts = conjuncts(condition)
        stores = [s for s in walk(body) if isinstance(s, Store)]
        if not parts or not stores or not all(self._may_grow(s) for s in stores):
            return None
        kept = list(parts)
        for part in parts:
            if _ends_a_loop(part, loops) or self._counts_rows_of_a_step(part, loops):
                continue
            rest = [c for c in kept if c is not part]
            if not all(_only_guards(part, s, values, ranges) for s in stores):
                continue
            if self._reads_inside(body, values, ranges, rest):
                kept = rest
        if len(kept) == len(parts):
            return None
        loads = [e for e in all_exprs(body) if isinstance(e, Load) and e.buffer in self.local]
        shapes = dict(self.shapes)
        if not all(self._grow(shapes, a, values, ranges, loops) for a in (*stores, *loads)):
            return None
        self.shapes = shapes
        return kept

    def _counts_rows_of_a_step(self, condition: Expr, loops: tuple[For, ...]) -> bool:
        """Whether `condition` limits a tile to an unknown number of rows, inside a scan."""
        used = free_vars(condition)
        is_of_rows = any(loop.kind == "unrolled" and loop.var in used for loop in loops)
        in_step = any(loop.var in self.steps for loop in loops)
        return is_of_rows and in_step and not used.isdisjoint(self.known)

    def _may_grow(self, store: Store) -> bool:
        return store.buffer in self.local and store.mask is None

    def _grow(
        self,
        shapes: dict[Buffer, tuple[Expr, ...]],
        access: Load | Store,
        values: Values,
        ranges: Ranges,
        loops: tuple[For, ...],
    ) -> bool:
        """Enlarge the buffer to hold all that `access` accesses, if that is known in advance."""
        reach = [_reach(substitute(i, values), ranges, loops) for i in access.indices]
        if any(e is None or loads_in(e) or not free_vars(e) <= self.known for e in reach):
            return False
        shape = shapes.get(access.buffer, access.buffer.shape)
        pairs = zip(shape, reach, strict=True)
        shapes[access.buffer] = tuple(simplify(maximum(a, b), ranges) for a, b in pairs)
        return True

    def _reads_inside(self, body: Stmt, values: Values, ranges: Ranges, kept: list[Expr]) -> bool:
        """Whether all reads are in bounds as long as `kept` holds.

        Intermediate buffers grow at the end, so for them only the lower bound counts.
        """
        for condition in kept:
            ranges = ranges.assuming(condition)
        return all(
            _is_inside(load, values, _where(ranges, chosen, values), load.buffer in self.local)
            for load, chosen in _chosen_loads(body)
        )


def _loops_over_steps(function: Function) -> frozenset[Var]:
    """The loops whose iterations depend on earlier ones."""
    blocks = (s for s in walk(function.body) if isinstance(s, Block))
    pairs = (pair for b in blocks for pair in zip(b.iters, b.bindings, strict=True))
    return frozenset(v for it, at in pairs if it.kind == "ordered" for v in free_vars(at))


def _ends_a_loop(condition: Expr, loops: tuple[For, ...]) -> bool:
    """Whether `condition` is the same for a whole tile and can shorten a loop over tiles."""
    used = free_vars(condition)
    around = [loop for loop in loops if loop.var in used]
    return all(is_shortened(loop) for loop in around) and any(
        limit_of(condition, loop.var) is not None for loop in around
    )


def _reach(index: Expr, ranges: Ranges, loops: tuple[For, ...]) -> Expr | None:
    """The extent that contains every value of `index`."""
    ends = symbolic_bounds(index, ranges, [loop.var for loop in loops])
    return None if ends is None else ends[1] + 1


def _only_guards(condition: Expr, store: Store, values: Values, ranges: Ranges) -> bool:
    """Whether `condition` says no more than that an index of `store` is below its extent."""
    if not isinstance(condition, Binary) or condition.op != "lt" or loads_in(condition):
        return False
    return any(
        prove(condition, ranges.assuming(substitute(index, values) < extent))
        for index, extent in zip(store.indices, store.buffer.shape, strict=True)
        if not loads_in(index)
    )


def _is_inside(load: Load, values: Values, ranges: Ranges, grows: bool) -> bool:
    pairs = zip(load.indices, load.buffer.shape, strict=True)
    return all(_is_within(i, None if grows else extent, values, ranges) for i, extent in pairs)


def _is_within(index: Expr, extent: Expr | None, values: Values, ranges: Ranges) -> bool:
    if not free_vars(index) <= values.keys():
        return False
    at = substitute(index, values)
    return (extent is None or prove(at < extent, ranges)) and prove(at >= 0, ranges)


def _where(ranges: Ranges, chosen: tuple[Expr, ...], values: Values) -> Ranges:
    for condition in chosen:
        ranges = ranges.assuming(substitute(condition, values))
    return ranges


def _chosen_loads(body: Stmt) -> Iterator[tuple[Load, tuple[Expr, ...]]]:
    """The loads of a body, each with the conditions of the selects on whose sides it is."""
    pending: list[tuple[Expr, tuple[Expr, ...]]]
    pending = [(e, ()) for s in walk(body) for e in child_exprs(s)]
    seen = set[tuple[Expr, tuple[Expr, ...]]]()
    while pending:
        node, chosen = pending.pop()
        if (node, chosen) in seen:
            continue
        seen.add((node, chosen))
        if isinstance(node, Load):
            yield node, chosen
        if isinstance(node, Select) and len(chosen) < _CHOICES:
            sides = (node.a, (*chosen, node.condition)), (node.b, (*chosen, ~node.condition))
            pending.extend(((node.condition, chosen), *sides))
        else:
            pending.extend((o, chosen) for o in node.operands)
